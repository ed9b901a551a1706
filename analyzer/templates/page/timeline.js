"use strict";
// The timeline: memory stacked by kind, line or process, load below it, and one interval that all of them show.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  const sums = deltas => { let sum = 0; return deltas.map(delta => sum += delta); };
  for (const gpu of data.gpus) {
    gpu.t = sums(gpu.t);
    for (const stack of gpu.stacks) {
      for (const series of stack.series) series.values = sums(series.values);
      stack.isSampled = Boolean(stack.t);
      stack.t = stack.t ? sums(stack.t) : gpu.t;
      stack.total = stack.t.map((_, at) => stack.series.reduce((sum, series) => sum + series.values[at], 0));
    }
    for (const series of gpu.beside) series.values = sums(series.values);
    for (const run of gpu.nvml) { run.t = sums(run.t); run.values = sums(run.values); }
    gpu.total = gpu.stacks[0]?.total ?? [];
  }

  const { bytes, time, html, clamp, round } = figures;
  const { LEFT, TOP, BOTTOM, view, charts, draw, node, indexAt, zoom, around, byteStep, Chart } = pictures(data.end);
  view.by = "kind";
  view.card = false;

  /** Of each half pixel of the interval the highest step of what has times `t` and a `total`: no peak is lost. */
  const visible = ({ t, total }, wide) => {
    const first = Math.max(0, indexAt(t, view.from)), columns = [];
    const slot = time => Math.floor((clamp(time, view.from, view.to) - view.from) / (view.to - view.from) * wide * 2);
    for (let at = first; at < t.length && t[at] <= view.to; at++) {
      const here = slot(t[at]), last = columns[columns.length - 1];
      if (last && last.slot === here) {
        last.leaves = at;
        if (total[at] > total[last.at]) last.at = at;
      } else {
        // What was held before goes on until here.
        if (last && last.leaves !== last.at) columns.push({ slot: last.slot + 1, at: last.leaves, leaves: last.leaves });
        columns.push({ slot: here, at, leaves: at });
      }
    }
    const last = columns[columns.length - 1];
    if (last && last.leaves !== last.at) columns.push({ slot: last.slot + 1, at: last.leaves, leaves: last.leaves });
    return columns;
  };

  class Memory extends Chart {
    constructor(section, gpu) {
      super(section.querySelector(".chart.memory"), 0, gpu);
      this.hidden = new Set();
      this.key_ = section.querySelector(".key.memory");
      this.interval = section.querySelector(".interval");
      this.kinds = section.querySelector("table.kinds");
      this.describe();
    }
    stack() { return this.gpu.stacks.find(stack => stack.by === view.by) ?? this.gpu.stacks[0]; }
    series() { return this.stack().series.filter(series => !this.hidden.has(series.name)); }
    describe() {
      this.key_.querySelectorAll("button").forEach(button => button.remove());
      this.hidden.clear();
      const buttons = this.stack().series.map(series => {
        const button = html("button", "", html("span", `swatch c${series.colour}`), series.name);
        button.type = "button";
        button.setAttribute("aria-pressed", "true");
        button.addEventListener("click", () => {
          const isHidden = this.hidden.has(series.name);
          this.hidden[isHidden ? "delete" : "add"](series.name);
          button.setAttribute("aria-pressed", String(isHidden));
          this.draw();
        });
        return button;
      });
      this.key_.prepend(...buttons);
    }
    figures(t) {
      const at = indexAt(this.gpu.t, t), lines = [time(t)], stack = this.stack(), there = indexAt(stack.t, t);
      if (at < 0) return [...lines, ["nothing held yet", ""]];
      lines.push(["device memory", bytes(this.gpu.total[at])]);
      if (stack.isSampled) lines.push(there < 0 ? ["by line", "no moment yet"] : ["by line, as recorded at", time(stack.t[there])]);
      const held = there < 0 ? [] : stack.series.map(series => [series.name, series.values[there]]).filter(([, value]) => value > 0);
      lines.push(...held.slice(0, 9).map(([name, value]) => [name, bytes(value)]));
      for (const series of this.gpu.beside) if (series.values[at] > 0) lines.push([`${series.name} (beside)`, bytes(series.values[at])]);
      const run = this.gpu.nvml.find(run => run.t[0] <= t && t <= run.until);
      if (run) lines.push(["this job by NVML", bytes(run.values[indexAt(run.t, t)])]);
      const near = (view.to - view.from) / this.wide * 6;
      for (const refusal of this.gpu.refused.filter(refusal => Math.abs(refusal.t - t) <= near).slice(0, 3)) lines.push(["refused", refusal.text]);
      return lines;
    }
    draw() {
      const height = this.box.clientWidth < 600 ? 220 : 270, bottom = height - BOTTOM;
      this.begin(height);
      const stack = this.stack(), columns = visible(stack, this.wide), series = this.series();
      const sum = at => series.reduce((sum, one) => sum + one.values[at], 0);
      const highest = (columns, of) => columns.reduce((best, column) => of(column.at) > of(best.at) ? column : best, columns[0]);
      const peak = highest(columns, sum), all = at => this.gpu.total[at];
      const steps = stack.isSampled ? visible(this.gpu, this.wide) : columns, top_ = highest(steps, all);
      const runs = this.gpu.nvml.filter(run => run.until >= view.from && run.t[0] <= view.to);
      let top = Math.max(peak ? sum(peak.at) : 0, stack.isSampled && top_ ? all(top_.at) : 0, ...runs.map(run => Math.max(...run.values)), 1);
      const limits = this.gpu.quotas.flatMap(quota => quota.t.map((from, at) => ({
        name: quota.name, bytes: quota.values[at], class: "quota", from, to: quota.t[at + 1] ?? Infinity,
      }))).filter(limit => limit.bytes !== null && limit.from < view.to && limit.to > view.from);
      if (this.gpu.capacity) limits.push({ name: "capacity", bytes: this.gpu.capacity, class: "capacity", from: 0, to: Infinity });
      if (view.card && this.gpu.capacity) top = Math.max(top, this.gpu.capacity);
      // A line that is near belongs into the picture.
      for (const limit of limits) if (limit.bytes <= top * 1.6) top = Math.max(top, limit.bytes);
      top *= 1.06;
      const y = value => bottom - Math.min(value / top, 1) * (bottom - TOP);
      for (let value = 0, step = byteStep(top); value <= top; value += step) {
        const line = round(y(value));
        this.add("line", { class: "grid", x1: LEFT, x2: this.right, y1: line, y2: line });
        this.add("text", { x: LEFT - 8, y: line + 4, "text-anchor": "end" }, bytes(value).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " "));
      }
      this.timeAxis(bottom);
      let below = columns.map(() => 0);
      const names = [];
      for (const one of series) {
        const above = columns.map((column, at) => below[at] + one.values[column.at]);
        if (above.some((value, at) => value !== below[at])) {
          this.add("path", { class: `band c${one.colour}`, d: this.band(columns, below, above, y) });
          names.push(this.name(one.name, columns, below, above, y));
        }
        below = above;
      }
      if (stack.isSampled && steps.length) this.add("path", { class: "outline", d: this.outline(steps, y) });
      names.filter(Boolean).forEach(([x, y, name]) => this.add("text", { class: "inside", x, y, "text-anchor": "middle" }, name));
      for (const run of runs) this.nvml(run, y);
      this.limits(limits, top, y);
      for (const refusal of this.gpu.refused.filter(refusal => refusal.t >= view.from && refusal.t <= view.to)) {
        const x = round(this.x(refusal.t)), mark = this.add("g", { class: "refused" });
        mark.append(node("line", { x1: x, x2: x, y1: TOP, y2: bottom }), node("path", { d: `M${x - 6} ${TOP - 12}h12l-6 10z` }));
      }
      this.overlay(TOP, bottom);
      this.say(top_);
    }
    place(columns, at, t = this.stack().t) { return at < columns.length ? round(this.x(at === 0 ? Math.max(t[columns[0].at], view.from) : view.from + columns[at].slot / 2 / this.wide * (view.to - view.from))) : round(this.right); }
    band(columns, below, above, y) {
      let path = `M${this.place(columns, 0)} ${round(y(above[0]))}`;
      for (let at = 1; at < columns.length; at++) if (above[at] !== above[at - 1]) path += `H${this.place(columns, at)}V${round(y(above[at]))}`;
      path += `H${this.place(columns, columns.length)}V${round(y(below[columns.length - 1]))}`;
      for (let at = columns.length - 2; at >= 0; at--) if (below[at] !== below[at + 1]) path += `H${this.place(columns, at + 1)}V${round(y(below[at]))}`;
      return `${path}H${this.place(columns, 0)}Z`;
    }
    /** The device total, where bands are known at some moments only. */
    outline(steps, y) {
      const place = at => this.place(steps, at, this.gpu.t), level = at => round(y(this.gpu.total[steps[at].at]));
      let path = `M${place(0)} ${level(0)}`;
      for (let at = 1; at < steps.length; at++) path += `H${place(at)}V${level(at)}`;
      return `${path}H${place(steps.length)}`;
    }
    /** Where a name fits into its band: colour is not the only key. */
    name(name, columns, below, above, y) {
      const thick = 17, needed = name.length * 6.8 + 8;
      let best = null;
      for (let at = 0; at < columns.length;) {
        let low = y(below[at]), high = y(above[at]);
        const from = at++;
        if (low - high < thick) continue;
        while (at < columns.length && Math.min(low, y(below[at])) - Math.max(high, y(above[at])) >= thick) {
          low = Math.min(low, y(below[at]));
          high = Math.max(high, y(above[at]));
          at++;
        }
        const [a, b] = [this.place(columns, from), this.place(columns, at)];
        if (b - a >= needed && (!best || b - a > best.wide)) best = { wide: b - a, x: (a + b) / 2, y: (low + high) / 2 };
      }
      return best && [round(best.x), round(best.y + 4), name];
    }
    nvml(run, y) {
      const first = Math.max(0, indexAt(run.t, view.from));
      let path = `M${round(this.x(Math.max(run.t[first], view.from)))} ${round(y(run.values[first]))}`;
      for (let at = first + 1; at < run.t.length && run.t[at] <= view.to; at++) path += `H${round(this.x(run.t[at]))}V${round(y(run.values[at]))}`;
      this.add("path", { class: "nvml", d: `${path}H${round(this.x(Math.min(run.until, view.to)))}` });
    }
    limits(limits, top, y) {
      const above = [];
      for (const limit of limits) {
        const text = `${limit.name} ${bytes(limit.bytes)}`;
        if (limit.bytes > top) { above.push(text); continue; }
        const line = round(y(limit.bytes));
        const [from, to] = [Math.max(this.x(Math.max(limit.from, view.from)), LEFT), Math.min(this.x(Math.min(limit.to, view.to)), this.right)];
        this.add("line", { class: limit.class, x1: round(from), x2: round(to), y1: line, y2: line });
        this.add("text", { class: "limit", x: round(Math.min(from, this.right - text.length * 6.6)) + 4, y: line - 5 }, text);
      }
      if (above.length) this.add("text", { class: "limit", x: LEFT + 4, y: 11 }, `↑ ${above.join(", ")}`);
    }
    /** `peak`: the highest step of the interval. */
    say(peak) {
      const whole = view.from === 0 && view.to === data.end;
      const refused = this.gpu.refused.filter(refusal => refusal.t >= view.from && refusal.t <= view.to).length;
      const parts = [`${time(view.from)} to ${time(view.to)}${whole ? " (all)" : ""}`];
      // The peak of the whole run stands above the picture, with the bound that it may be.
      if (peak && !whole) parts.push(`peak ${bytes(this.gpu.total[peak.at])} at ${time(Math.max(this.gpu.t[peak.at], view.from))}`);
      if (refused) parts.push(`${refused} refused ${refused === 1 ? "request" : "requests"}`);
      if (this.stack().isSampled) parts.push("lines as recorded at some moments, each until the next; the dark line is the device total");
      const text = parts.join(" · ");
      if (this.interval.textContent !== text) this.interval.textContent = text;
      this.table(peak, whole);
    }
    /** The table of kinds shows the same moment. */
    table(peak, whole) {
      if (!this.kinds) return;
      const at = peak?.at ?? -1, interval = `${time(view.from)} to ${time(view.to)}`, t = at < 0 ? 0 : Math.max(this.gpu.t[at], view.from);
      const text = whole ? "At the peak of the whole run."
        : at < 0 ? `Nothing was held from ${interval}.`
        : `At the peak of ${interval}: ${bytes(this.gpu.total[at])} at ${time(t)}. The other columns are of the whole run.`;
      if (this.kinds.caption.textContent === text) return;
      this.kinds.caption.textContent = text;
      const all = [...this.gpu.stacks[0].series, ...this.gpu.beside];
      for (const row of this.kinds.querySelectorAll("tr[data-kind]")) {
        const cell = row.cells[1], series = all.find(series => series.name === row.dataset.kind);
        cell.dataset.peak ??= cell.textContent;
        cell.textContent = whole ? cell.dataset.peak : at < 0 ? "-" : bytes(series?.values[at] ?? 0);
      }
    }
  }

  class Load extends Chart {
    constructor(box, gpu) { super(box, 130, gpu); }
    figures(t) {
      const count = this.gpu.load[0].values.length, at = clamp(Math.floor(t / data.end * count), 0, count - 1);
      const value = line => line.values[at] === null ? "not measured" : `${(line.values[at] / 10).toFixed(0)} %`;
      return [time(t), ...this.gpu.load.map(line => [line.name, value(line)])];
    }
    draw() {
      const bottom = this.height - BOTTOM, top = 12, y = share => bottom - share / 1000 * (bottom - top);
      this.begin(this.height);
      for (const share of [0, 500, 1000]) {
        this.add("line", { class: "grid", x1: LEFT, x2: this.right, y1: y(share), y2: y(share) });
        this.add("text", { x: LEFT - 8, y: y(share) + 4, "text-anchor": "end" }, `${share / 10} %`);
      }
      this.timeAxis(bottom);
      for (const line of this.gpu.load) {
        const width = data.end / line.values.length;
        let path = "", down = false;
        line.values.forEach((value, at) => {
          const [a, b] = [Math.max(at * width, view.from), Math.min((at + 1) * width, view.to)];
          if (value === null || a >= b) { down = false; return; }
          path += `${down ? "V" + round(y(value)) : `M${round(this.x(a))} ${round(y(value))}`}H${round(this.x(b))}`;
          down = true;
        });
        if (path) this.add("path", { class: `line c${line.colour}`, d: path, style: "fill:none" });
      }
      this.overlay(top, bottom);
    }
  }

  /** The whole run in small, with the interval as a window that can be moved. */
  class Overview extends Chart {
    constructor(box) { super(box, 56, { t: [], ...data.gpus[0] }); }
    x(t) { return LEFT + t / data.end * this.wide; }
    t(x) { return clamp((x - LEFT) / this.wide * data.end, 0, data.end); }
    figures() { return null; }
    neighbour(_, way) {
      const length = view.to - view.from;
      zoom(view.from + way * length / 10, view.to + way * length / 10);
      return null;
    }
    click(t) { zoom(t - (view.to - view.from) / 2, t + (view.to - view.from) / 2); }
    draw() {
      const bottom = this.height - 6;
      this.begin(this.height);
      const top = Math.max(1, ...data.gpus.map(gpu => Math.max(0, ...gpu.total)));
      for (const gpu of data.gpus) {
        let path = `M${LEFT} ${bottom}`;
        gpu.t.forEach((t, at) => path += `H${round(this.x(t))}V${round(bottom - gpu.total[at] / top * (bottom - 6))}`);
        this.add("path", { class: "whole", d: `${path}H${this.right}V${bottom}Z` });
      }
      const [a, b] = [this.x(view.from), this.x(view.to)];
      this.add("rect", { class: "window", x: round(a), y: 3, width: round(Math.max(b - a, 2)), height: bottom - 1 });
      this.overlay(3, bottom);
    }
  }

  /** Ranges and marks of the program: a row for each depth of each thread. */
  class Phases extends Chart {
    constructor(box, phases) {
      super(box, 14 + phases.rows * 20 + BOTTOM, { t: phases.ranges.map(range => range[2]) });
      this.phases = phases;
    }
    label([name, , , , , step]) { return this.phases.names[name] + (step < 0 ? "" : ` ${step}`); }
    figures(t) {
      const inside = this.phases.ranges.filter(([, , from, length]) => from <= t && t <= from + length).slice(0, 8);
      const near = (view.to - view.from) / this.wide * 3;
      const marks = this.phases.marks.filter(([, at]) => Math.abs(at - t) <= near).slice(0, 4);
      if (!inside.length && !marks.length) return [time(t), ["no phase", ""]];
      const peak = most => most < 0 ? "" : ` · up to ${bytes(most)}`;
      return [time(t), ...inside.map(range => [this.label(range), time(range[3]) + peak(range[4])]), ...marks.map(([name]) => [this.phases.names[name], "mark"])];
    }
    draw() {
      const bottom = this.height - BOTTOM;
      this.begin(this.height);
      for (const [name, row] of this.phases.threads) if (this.phases.threads.length > 1) this.add("text", { x: LEFT - 8, y: 14 + row * 20 + 14, "text-anchor": "end" }, name.replace(/^pid /, "").replace(", thread ", "/"));
      // One rectangle for each pixel of a row at most.
      const drawn = new Map();
      for (const range of this.phases.ranges) {
        const [name, row, from, length] = range;
        if (from + length < view.from || from > view.to) continue;
        const a = this.x(Math.max(from, view.from)), b = this.x(Math.min(from + length, view.to));
        if (b - a < 1 && drawn.get(row) === Math.floor(a)) continue;
        drawn.set(row, Math.floor(b));
        this.add("rect", { class: `band c${name % 8}`, x: round(a), y: 14 + row * 20, width: round(Math.max(b - a, 1)), height: 18 });
        const text = this.label(range), room = Math.floor((b - a - 8) / 7);
        if (room >= Math.min(3, text.length)) this.add("text", { class: "inside", x: round(a) + 4, y: 14 + row * 20 + 13 }, text.length > room ? text.slice(0, Math.max(room - 1, 1)) + "…" : text);
      }
      for (const [, at] of this.phases.marks) {
        if (at < view.from || at > view.to) continue;
        const x = round(this.x(at));
        this.add("path", { class: "mark", d: `M${x} 12V${bottom}M${x - 4} 2H${round(x + 4)}L${x} 11Z` });
      }
      this.timeAxis(bottom);
      this.overlay(2, bottom);
    }
  }

  document.documentElement.classList.add("js");
  for (const gpu of data.gpus) {
    const section = document.getElementById(`gpu-${gpu.index}`);
    if (gpu.t.length) new Memory(section, gpu);
    if (gpu.load.length) new Load(section.querySelector(".chart.load"), gpu);
  }
  const overview = document.getElementById("overview");
  if (overview) {
    new Overview(overview);
    const phases = document.getElementById("phases");
    if (phases) new Phases(phases, JSON.parse(document.getElementById("phases-data").textContent));
    const pick = (name, act) => document.querySelector(`#timeline [name=${name}]`).addEventListener("change", event => act(event.target));
    pick("by", field => { view.by = field.value; charts.forEach(chart => chart.describe?.()); draw(); });
    pick("card", field => { view.card = field.checked; draw(); });
    const centre = () => (view.from + view.to) / 2;
    const acts = { in: () => around(centre(), 0.5), out: () => around(centre(), 2), all: () => zoom(0, data.end) };
    for (const [name, act] of Object.entries(acts)) document.querySelector(`#timeline [name=${name}]`).addEventListener("click", act);
  }
})();
