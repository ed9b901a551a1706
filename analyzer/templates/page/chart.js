"use strict";
// What pictures over time share: a plot with a time axis, a cursor, and one interval that all of them show, from 0 to `end`
// microseconds. A change of the interval is announced as the event "radrm-interval" of the document, with its ends in
// microseconds.
const pictures = end => {
  const SVG = document.querySelector("svg").namespaceURI;
  const LEFT = 66, RIGHT = 10, TOP = 24, BOTTOM = 26;
  /** The shortest interval that can be shown, in microseconds. */
  const SHORTEST = Math.max(1, Math.min(10, end));
  const { two, html, clamp, round } = figures;

  /** A time at the axis: no digits that say nothing. */
  const tick = (us, step) => {
    if (us === 0) return "0";
    if (step < 1e3 && us < 1e3) return `${us} us`;
    if (step < 1e6 && us < 1e6) return `${+(us / 1e3).toFixed(3)} ms`;
    if (step < 1e6) return `${+(us / 1e6).toFixed(6)} s`;
    const seconds = Math.round(us / 1e6);
    if (seconds < 60) return `${seconds} s`;
    return step < 6e7 || seconds < 3600
      ? `${Math.floor(seconds / 60)}:${two(seconds % 60)} min`
      : `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)} h`;
  };

  const view = { from: 0, to: end };
  const charts = [];
  const draw = () => charts.forEach(chart => chart.draw());
  const node = (name, attributes = {}, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  /** The last index of `times` that is not after `t`; -1 before the first. */
  const indexAt = (times, t) => {
    let low = 0, high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= t) low = middle + 1; else high = middle;
    }
    return low - 1;
  };

  const zoom = (from, to, announce = true) => {
    const length = clamp(to - from, SHORTEST, end);
    view.from = clamp(from, 0, end - length);
    view.to = view.from + length;
    draw();
    if (announce) document.dispatchEvent(new CustomEvent("radrm-interval", { detail: { from: view.from, to: view.to, whole: length === end } }));
  };
  const around = (centre, factor) => {
    const length = (view.to - view.from) * factor, share = (centre - view.from) / (view.to - view.from);
    zoom(centre - length * share, centre + length * (1 - share));
  };

  const byteStep = top => { let step = 1; while (top / step > 5) step *= 2; return step; };
  const timeStep = (length, most) => {
    const seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800].map(s => s * 1e6);
    const short = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5];
    return [...short, ...seconds].find(step => length / step <= most) ?? length;
  };

  /** What all pictures share: a plot with a time axis, a cursor, and the choice of an interval. */
  class Chart {
    constructor(box, height, gpu) {
      Object.assign(this, { box, height, gpu, cursor: null, chosen: null });
      this.svg = node("svg", { "aria-hidden": "true" });
      this.box.append(this.svg);
      this.tip = html("div", "tip");
      this.tip.hidden = true;
      this.said = html("div", "out");
      this.said.setAttribute("role", "status");
      this.box.append(this.tip, this.said);
      this.listen();
      charts.push(this);
      let before = -1;
      // Drawing changes the height of the box, which must not happen while sizes are being observed.
      new ResizeObserver(() => requestAnimationFrame(() => {
        if (this.box.clientWidth === before) return;
        before = this.box.clientWidth;
        this.draw();
      })).observe(this.box);
    }
    get wide() { return Math.max(this.box.clientWidth - LEFT - RIGHT, 50); }
    x(t) { return LEFT + (t - view.from) / (view.to - view.from) * this.wide; }
    t(x) { return clamp(view.from + (x - LEFT) / this.wide * (view.to - view.from), view.from, view.to); }

    begin(height) {
      this.svg.replaceChildren();
      this.svg.setAttribute("viewBox", `0 0 ${this.box.clientWidth} ${height}`);
      this.svg.setAttribute("height", height);
      this.right = LEFT + this.wide;
    }
    add(name, attributes, text) { const made = node(name, attributes, text); this.svg.append(made); return made; }
    timeAxis(y) {
      const step = timeStep(view.to - view.from, Math.max(2, Math.floor(this.wide / 90)));
      for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
        const x = round(this.x(t));
        this.add("line", { class: "grid", x1: x, x2: x, y1: y, y2: y + 5 });
        this.add("text", { x, y: y + 19, "text-anchor": x > this.right - 24 ? "end" : x < LEFT + 8 ? "start" : "middle" }, tick(Math.round(t), step));
      }
    }
    overlay(top, bottom) {
      if (this.chosen) {
        const [a, b] = this.chosen.map(t => this.x(t)).sort((p, q) => p - q);
        this.add("rect", { class: "chosen", x: round(a), y: top, width: round(Math.max(b - a, 1)), height: bottom - top });
      }
      if (this.cursor !== null && this.cursor >= view.from && this.cursor <= view.to) {
        const x = round(this.x(this.cursor));
        this.add("line", { class: "cursor", x1: x, x2: x, y1: top, y2: bottom });
      }
    }
    /** Puts the cursor at a time, and shows its figures there; reads them out where keys moved it. */
    point(t, aloud) {
      this.cursor = t;
      this.draw();
      const lines = t === null ? null : this.figures(t);
      this.tip.hidden = !lines;
      if (!lines) return;
      this.tip.replaceChildren(html("b", "", lines[0]), ...lines.slice(1).map(([name, value]) => html("span", "", html("i", "", name), html("i", "", value))));
      const x = this.x(t), room = this.box.clientWidth;
      this.tip.style.left = x < room / 2 ? `${x + 12}px` : "";
      this.tip.style.right = x < room / 2 ? "" : `${room - x + 12}px`;
      if (aloud) this.said.textContent = [lines[0], ...lines.slice(1).map(line => line.join(" "))].join(", ");
    }
    take() {
      const [a, b] = this.chosen.slice().sort((p, q) => p - q);
      this.chosen = null;
      this.point(null);
      zoom(a, b);
    }
    listen() {
      const at = event => this.t(event.clientX - this.box.getBoundingClientRect().left);
      let begun = null;
      this.svg.addEventListener("pointerdown", event => {
        if (event.button !== 0) return;
        begun = { x: event.clientX, t: at(event) };
        try { this.svg.setPointerCapture(event.pointerId); } catch { /* the pointer is gone already */ }
      });
      this.svg.addEventListener("pointermove", event => {
        if (begun && Math.abs(event.clientX - begun.x) > 4) this.chosen = [begun.t, at(event)];
        this.point(at(event), false);
      });
      this.svg.addEventListener("pointerup", () => {
        if (begun && this.chosen) this.take();
        else if (begun) this.click?.(begun.t);
        begun = null;
      });
      this.svg.addEventListener("pointercancel", () => { begun = this.chosen = null; this.point(null); });
      this.svg.addEventListener("pointerleave", () => { if (!begun) this.point(null); });
      this.svg.addEventListener("dblclick", () => zoom(0, end));
      this.svg.addEventListener("wheel", event => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        around(at(event), event.deltaY > 0 ? 1.25 : 0.8);
      }, { passive: false });
      this.box.addEventListener("keydown", event => { if (this.key(event)) event.preventDefault(); });
      this.box.addEventListener("blur", () => { this.chosen = null; this.point(null); });
    }
    key(event) {
      const length = view.to - view.from, centre = this.cursor ?? (view.from + view.to) / 2;
      if (event.altKey || event.metaKey || event.ctrlKey) return false;
      switch (event.key) {
        case "ArrowLeft": case "ArrowRight": {
          const next = this.neighbour(centre, event.key === "ArrowRight" ? 1 : -1);
          if (event.shiftKey) this.chosen = [this.chosen?.[0] ?? centre, next]; else this.chosen = null;
          this.point(next, true);
          return true;
        }
        case "Home": this.point(view.from, true); return true;
        case "End": this.point(view.to, true); return true;
        case "PageUp": zoom(view.from - length / 2, view.to - length / 2); return true;
        case "PageDown": zoom(view.from + length / 2, view.to + length / 2); return true;
        case "+": case "=": around(centre, 0.5); return true;
        case "-": around(centre, 2); return true;
        case "Enter": if (this.chosen) this.take(); return true;
        case "Escape":
          if (this.chosen || this.cursor !== null) { this.chosen = null; this.point(null); } else zoom(0, end);
          return true;
        default: return false;
      }
    }
    /** The next time at which a step of the picture lies, at least a pixel away. */
    neighbour(t, way) {
      const pixel = (view.to - view.from) / this.wide, times = this.gpu.t;
      if (way > 0) return clamp(times.find(other => other >= t + pixel) ?? view.to, view.from, view.to);
      const at = indexAt(times, t - pixel);
      return clamp(at < 0 ? view.from : times[at], view.from, view.to);
    }
  }

  return { LEFT, TOP, BOTTOM, view, charts, draw, node, indexAt, zoom, around, byteStep, Chart };
};
