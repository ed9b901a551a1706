"use strict";
// Curves of the chosen runs, one over the other, from the start of each.
const overlay = app => {
  const { html, bytes, time, round } = figures;
  const FIGURES = [
    { key: "memory", title: "GPU memory", unit: "bytes" },
    { key: "sm_activity", title: "SM activity", unit: "share" },
    { key: "steps", title: "Steps per second", unit: "rate" },
    { key: "power", title: "Power", unit: "watt" },
  ];
  const DASHES = ["", "7 3", "2 3"];
  const section = document.getElementById("overlay");
  const said = section.querySelector(".said"), key = section.querySelector(".key"), box = section.querySelector(".charts");
  const kept = new Map(), hidden = new Set();
  let drawn = 0, shown = [];

  const style = at => ({ class: `line c${at % 9}`, "stroke-dasharray": DASHES[Math.floor(at / 9) % 3] });
  const name = id => {
    const at = app.data.rows.get(id), command = at === undefined ? "" : app.data.byKey.get("command").values[at];
    return `run ${id} ${command.length > 40 ? `${command.slice(0, 39)}…` : command}`.trim();
  };
  /** Curves of a run, or the sentence that says why there are none. */
  const curves = async id => {
    if (!kept.has(id)) {
      try {
        const found = await runs.ask(`/api/series/${id}`);
        kept.set(id, { curves: Object.fromEntries(found.curves.map(curve => [curve.key, curve])), end: found.end, gpu: found.gpu });
      } catch (error) {
        return { problem: error.message };
      }
    }
    return kept.get(id);
  };

  /** Values at an axis: a few round ones. */
  const ticks = (top, figure, byteStep) => {
    let step = figure.unit === "bytes" ? byteStep(top) : 10 ** Math.floor(Math.log10(top / 4));
    if (figure.unit !== "bytes") for (const factor of [2, 2.5, 2]) if (top / step > 5) step *= factor;
    const found = [];
    for (let value = 0; value <= top; value += step) found.push(value);
    return found;
  };
  const axis = (value, figure) => figure.unit === "bytes" ? bytes(value).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ")
    : figure.unit === "share" ? `${+(value * 100).toFixed(1)} %` : figure.unit === "watt" ? `${+value.toFixed(1)} W` : `${+value.toPrecision(3)} /s`;

  const picture = (common, figure, all) => {
    const { LEFT, TOP, BOTTOM, view, Chart, indexAt, byteStep } = common;
    const lines = all.map((run, at) => ({ ...run, at, curve: run.curves[figure.key] })).filter(run => run.curve.t.length);
    const heading = html("h3", "", figure.title), made = html("div", "chart");
    if (!lines.length) {
      const why = [...new Set(all.map(run => run.curves[figure.key].how))].join("; ");
      box.append(heading, html("p", "soft", `None of the chosen runs has it: ${why}.`));
      return;
    }
    const how = [...new Set(lines.map(run => run.curve.how))].join("; ");
    const without = all.length - lines.length;
    made.tabIndex = 0;
    made.setAttribute("role", "application");
    made.setAttribute("aria-roledescription", "timeline");
    made.setAttribute("aria-label", `${figure.title} of ${lines.length} runs over time. Means are in a table below. Arrows move along the curves, Shift and arrows choose an interval, Enter zooms into it, Escape shows everything.`);
    box.append(heading, html("p", "soft", `${how}${without ? `; ${without} of the chosen runs without it` : ""}`), made);
    const times = [...new Set(lines.flatMap(run => run.curve.t))].sort((a, b) => a - b);
    class Lines extends Chart {
      visible() { return lines.filter(run => !hidden.has(run.id)); }
      figures(t) {
        const value = run => {
          const at = t > run.end ? -1 : indexAt(run.curve.t, t), found = at < 0 ? null : run.curve.v[at];
          return found === null ? t > run.end ? "over" : "n/a" : runs.shown(figure, found);
        };
        return [time(t), ...this.visible().map(run => [`run ${run.id}`, value(run)])];
      }
      draw() {
        const height = 230, bottom = height - BOTTOM;
        this.begin(height);
        const visible = this.visible();
        const top = Math.max(...visible.flatMap(run => run.curve.v.map(value => value ?? 0)), figure.unit === "bytes" ? 1 : 1e-9) * 1.06;
        const y = value => bottom - Math.min(value / top, 1) * (bottom - TOP);
        for (const value of ticks(top, figure, byteStep)) {
          const line = round(y(value));
          this.add("line", { class: "grid", x1: LEFT, x2: this.right, y1: line, y2: line });
          this.add("text", { x: LEFT - 8, y: line + 4, "text-anchor": "end" }, axis(value, figure));
        }
        this.timeAxis(bottom);
        for (const run of visible) {
          const { t, v } = run.curve;
          let path = "", isDown = false;
          for (let at = Math.max(0, indexAt(t, view.from)); at < t.length && t[at] <= view.to; at++) {
            const until = Math.min(t[at + 1] ?? run.end, view.to);
            if (v[at] === null || until < view.from) { isDown = false; continue; }
            path += `${isDown ? `V${round(y(v[at]))}` : `M${round(this.x(Math.max(t[at], view.from)))} ${round(y(v[at]))}`}H${round(this.x(until))}`;
            isDown = true;
          }
          if (path) this.add("path", { ...style(run.at), fill: "none", d: path });
        }
        this.overlay(TOP, bottom);
      }
    }
    new Lines(made, 230, { t: times });
  };

  const keys = all => key.replaceChildren(...all.map((run, at) => {
    const mark = document.createElementNS(document.querySelector("svg").namespaceURI, "svg");
    const line = document.createElementNS(mark.namespaceURI, "path");
    mark.setAttribute("viewBox", "0 0 26 12");
    mark.setAttribute("class", "dash");
    mark.setAttribute("aria-hidden", "true");
    for (const [name, value] of Object.entries({ ...style(at), d: "M0 6H26", "stroke-width": 2.4 })) line.setAttribute(name, value);
    mark.append(line);
    const button = html("button", "", mark, name(run.id));
    button.type = "button";
    button.setAttribute("aria-pressed", String(!hidden.has(run.id)));
    button.addEventListener("click", () => {
      const isHidden = hidden.has(run.id);
      hidden[isHidden ? "delete" : "add"](run.id);
      button.setAttribute("aria-pressed", String(isHidden));
      shown.forEach(chart => chart.draw());
    });
    return button;
  }));

  /** The mean of a curve by time. */
  const mean = (curve, end) => {
    let sum = 0, long = 0;
    curve.t.forEach((t, at) => {
      const length = (curve.t[at + 1] ?? end) - t;
      if (curve.v[at] !== null) { sum += curve.v[at] * length; long += length; }
    });
    return long > 0 ? sum / long : null;
  };
  const summary = all => {
    const table = html("table", "data"), head = html("tr", ""), body = html("tbody", "");
    table.setAttribute("aria-label", "Means of the chosen runs");
    head.append(html("th", "left", "run"), html("th", "", "time"), html("th", "left", "GPU"), ...FIGURES.map(figure => html("th", "", `mean ${figure.title}`)));
    for (const run of all) {
      const row = html("tr", "", html("td", "left wrap", name(run.id)), html("td", "", time(run.end)), html("td", "left", run.gpu ? `${run.gpu[0]} ${run.gpu[1]}` : "n/a"));
      row.append(...FIGURES.map(figure => html("td", "", runs.shown(figure, mean(run.curves[figure.key], run.end)))));
      body.append(row);
    }
    table.append(html("thead", "", head), body);
    label(table);
    box.append(html("div", "scroll", table));
  };

  const draw = async () => {
    const turn = ++drawn, ids = [...app.chosen], begun = performance.now();
    if (ids.length) said.textContent = `Reading ${ids.length} ${ids.length === 1 ? "profile" : "profiles"} …`;
    const read = await Promise.all(ids.map(async id => ({ id, ...await curves(id) })));
    // The choice may have changed meanwhile.
    if (turn !== drawn) return;
    const all = read.filter(run => !run.problem), problems = read.filter(run => run.problem);
    box.replaceChildren();
    shown = [];
    keys(all);
    for (const run of problems) box.append(html("p", "bad", `Run ${run.id}: ${run.problem}`));
    if (all.length) {
      const common = pictures(Math.max(...all.map(run => run.end)));
      shown = common.charts;
      for (const figure of FIGURES) picture(common, figure, all);
      summary(all);
      common.draw();
    }
    said.textContent = ids.length === 0 ? "Choose runs in the table above; their curves are shown here."
      : `${all.length} of ${ids.length} chosen runs are drawn${app.full ? `; no more than ${app.MOST} are` : ""}.`;
    section.dataset.ms = (performance.now() - begun).toFixed(1);
  };
  return { draw, forget: () => kept.clear() };
};
