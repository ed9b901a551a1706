"use strict";
// A figure of the runs that the filter leaves, by another figure or a parameter: points, or boxes or means by value.
const relations = app => {
  const { html, clamp, round } = figures;
  const { LEFT, TOP, BOTTOM, node } = pictures(1);
  const HEIGHT = 320, COLOURS = 8, BOXES = 24, RIGHT = 14, LOGS = ["logx", "logy"];
  const section = document.getElementById("relations"), chart = section.querySelector(".chart");
  const field = name => section.querySelector(`[name=${name}]`);
  const said = section.querySelector(".said"), key = section.querySelector(".key"), below = section.querySelector(".figures-table");
  const svg = node("svg", { "aria-hidden": "true" }), tip = html("div", "tip"), aloud = html("div", "out");
  tip.hidden = true;
  aloud.setAttribute("role", "status");
  chart.append(svg, tip, aloud);
  let rows = [], points = [], cursor = -1, isFilled = false;

  const fill = () => {
    const usable = app.data.columns.filter(column => column.known > 0 && column.key !== "profile" && column.key !== "peak_exact");
    const option = column => { const made = html("option", "", column.title); made.value = column.key; return made; };
    const put = (select, columns, first, wanted) => {
      const before = isFilled ? select.value : view.get(select.name) ?? wanted;
      select.replaceChildren(...first, ...columns.map(option));
      if ([...select.options].some(made => made.value === before)) select.value = before;
    };
    const none = html("option", "", "nothing");
    none.value = "";
    put(field("y"), usable.filter(column => !column.isText && column.key !== "run"), [], "peak");
    const parameter = usable.find(column => column.is_parameter && new Set(column.values).size > 1);
    put(field("x"), usable, [], usable.some(column => column.key === "batch") ? "batch" : parameter?.key ?? "run_time");
    put(field("colour"), usable.filter(column => column.isText || column.is_parameter || column.key === "batch"), [none], "");
    if (!isFilled) {
      const as = view.get("as");
      if ([...field("as").options].some(option => option.value === as)) field("as").value = as;
      for (const name of LOGS) field(name).checked = view.get(name) !== null;
    }
    isFilled = true;
  };

  /** A few round values from the lowest to the highest. */
  const ticks = (column, low, high, most) => {
    const length = high - low || Math.abs(high) || 1;
    let step = column.unit === "bytes" ? 1 : 10 ** Math.floor(Math.log10(length / most));
    if (column.unit === "bytes") while (length / step > most) step *= 2;
    else for (const factor of [2, 2.5, 2]) if (length / step > most) step *= factor;
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
    return found;
  };
  /** A linear or logarithmic scale of a column; a logarithm has no place for what is not above 0. */
  const scale = (column, name) => {
    const isLog = field(name).checked && !column.isText;
    return { isLog, of: isLog ? Math.log10 : value => value, holds: value => value !== null && (!isLog || value > 0) };
  };
  /** Powers of ten, and between few of them 2 and 5 times these; of bytes powers of two. `low` and `high` are exponents of ten. */
  const powers = (column, low, high, most) => {
    if (column.unit === "bytes") {
      const [from, to] = [low, high].map(end => end / Math.log10(2)), every = Math.max(1, Math.ceil((to - from) / most)), found = [];
      for (let power = Math.ceil(from); power <= to; power += every) found.push(2 ** power);
      return found;
    }
    const every = Math.max(1, Math.ceil((high - low) / most)), found = [];
    for (let power = Math.floor(low); power <= high; power += every)
      for (const factor of high - low > 2 ? [1] : [1, 2, 5]) {
        const value = factor * 10 ** power, at = Math.log10(value);
        if (at >= low && at <= high) found.push(value);
      }
    return found;
  };
  const marks = (column, { isLog }, low, high, most) => isLog ? powers(column, low, high, most) : ticks(column, low, high, most);
  const short = (column, value) => column.unit === "number" ? String(+value.toPrecision(4)) : runs.shown(column, value).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
  const counted = column => {
    const counts = new Map();
    for (const at of rows) if (column.values[at] !== null) counts.set(column.values[at], (counts.get(column.values[at]) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]);
  };
  const wide = () => Math.max(chart.clientWidth - LEFT - RIGHT, 50);
  const begin = () => {
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${chart.clientWidth} ${HEIGHT}`);
    svg.setAttribute("height", HEIGHT);
  };
  const add = (name, attributes, text) => { const made = node(name, attributes, text); svg.append(made); return made; };
  const bottom = HEIGHT - BOTTOM - 18;
  const yAxis = (column, way, [low, high]) => {
    const y = value => bottom - (way.of(value) - low) / (high - low) * (bottom - TOP);
    for (const value of marks(column, way, low, high, 5)) {
      add("line", { class: "grid", x1: LEFT, x2: LEFT + wide(), y1: round(y(value)), y2: round(y(value)) });
      add("text", { x: LEFT - 6, y: round(y(value)) + 4, "text-anchor": "end" }, short(column, value));
    }
    add("text", { class: "axis", x: 4, y: 12 }, column.title);
    return y;
  };
  const range = (values, isLog = false) => {
    let low = Infinity, high = -Infinity;
    for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
    const room = (high - low || Math.abs(high) || 1) * 0.04;
    // A scale that begins near zero begins at zero.
    return [!isLog && low >= 0 && low < high / 2 ? 0 : low - room, high + room];
  };

  const scatter = (x, y) => {
    const wayX = scale(x, "logx"), wayY = scale(y, "logy");
    const usable = rows.filter(at => wayX.holds(x.values[at]) && wayY.holds(y.values[at]));
    const order = x.isText ? [...new Set(usable.map(at => x.values[at]))].sort(runs.order(x)) : null;
    const place = order && new Map(order.map((value, at) => [value, at]));
    const valueOf = at => place ? place.get(x.values[at]) : wayX.of(x.values[at]);
    begin();
    points = [];
    if (!usable.length) { said.textContent = "No run of the filter has both figures."; return; }
    const [low, high] = order ? [-0.5, order.length - 0.5] : range(usable.map(valueOf), wayX.isLog);
    const toY = yAxis(y, wayY, range(usable.map(at => wayY.of(y.values[at])), wayY.isLog)), toX = value => LEFT + (value - low) / (high - low) * wide();
    const most = Math.max(2, Math.floor(wide() / 110));
    if (order) {
      const every = Math.ceil(order.length / most);
      order.forEach((value, at) => { if (at % every === 0) add("text", { x: round(toX(at)), y: bottom + 18, "text-anchor": "middle" }, value.length > 16 ? `${value.slice(0, 15)}…` : value); });
    } else for (const value of marks(x, wayX, low, high, most)) {
      const at = round(toX(wayX.of(value)));
      add("line", { class: "grid", x1: at, x2: at, y1: bottom, y2: bottom + 5 });
      add("text", { x: at, y: bottom + 18, "text-anchor": "middle" }, short(x, value));
    }
    add("text", { class: "axis", x: LEFT + wide(), y: HEIGHT - 4, "text-anchor": "end" }, x.title);
    const colour = app.data.byKey.get(field("colour").value);
    const named = colour ? counted(colour).slice(0, COLOURS).map(([value]) => value).sort(runs.order(colour)) : [];
    const paths = new Map(), chosen = [];
    for (const at of usable) {
      const point = { at, x: round(toX(valueOf(at))), y: round(toY(y.values[at])) };
      points.push(point);
      const number = colour ? named.indexOf(colour.values[at]) : 0, of = number < 0 ? COLOURS : number;
      paths.set(of, `${paths.get(of) ?? ""}M${point.x} ${point.y}h0`);
      if (app.chosen.has(app.data.number[at])) chosen.push(`M${point.x} ${point.y}h0`);
    }
    if (chosen.length) add("path", { class: "dot chosen-run", d: chosen.join("") });
    for (const [of, path] of paths) add("path", { class: `dot c${of}`, d: path });
    points.sort((a, b) => a.x - b.x || a.y - b.y);
    if (colour) {
      const names = [...named.map((value, at) => [runs.shown(colour, value), at]), ...(paths.has(COLOURS) ? [["others", COLOURS]] : [])];
      key.replaceChildren(...names.map(([value, at]) => html("span", "", html("span", `swatch c${at}`), value)));
    }
    said.textContent = `${points.length.toLocaleString("en")} runs: ${y.title} by ${x.title}.`;
  };

  const quantile = (ordered, share) => {
    const at = (ordered.length - 1) * share, low = Math.floor(at), high = Math.ceil(at);
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low);
  };
  /** Values of a figure by those of another, in their order: the most frequent ones, and how many there are. */
  const grouped = (x, y, way) => {
    const groups = new Map();
    for (const at of rows) {
      if (x.values[at] === null || !way.holds(y.values[at])) continue;
      if (!groups.has(x.values[at])) groups.set(x.values[at], []);
      groups.get(x.values[at]).push(y.values[at]);
    }
    const largest = [...groups].sort((a, b) => b[1].length - a[1].length).slice(0, BOXES), compare = runs.order(x);
    return { largest: largest.sort((a, b) => compare(a[0], b[0])), count: groups.size };
  };
  /** Draws each group in its place, and its name below. */
  const places = (x, all, draw) => {
    const step = wide() / all.length, every = Math.ceil(70 / step);
    all.forEach((one, at) => {
      const middle = round(LEFT + (at + 0.5) * step);
      draw(one, middle, Math.min(step * 0.35, 40));
      if (at % every === 0) { const text = short(x, one.value); add("text", { x: middle, y: bottom + 18, "text-anchor": "middle" }, text.length > 16 ? `${text.slice(0, 15)}…` : text); }
    });
    add("text", { class: "axis", x: LEFT + wide(), y: HEIGHT - 4, "text-anchor": "end" }, x.title);
  };
  /** A table of the groups: the value, the runs, and figures. */
  const tabulate = (x, y, all, names, cells) => {
    const table = html("table", "data"), head = html("tr", "", html("th", "left", x.title)), body = html("tbody", "");
    table.setAttribute("aria-label", `${y.title} by ${x.title}`);
    head.append(...["runs", ...names].map(name => html("th", "", name)));
    const isCount = y.unit === "count", column = isCount ? { ...y, unit: "number" } : y;
    const figure = value => html("td", "", value === null ? "n/a" : runs.shown(column, isCount ? +value.toFixed(2) : value));
    for (const one of all) body.append(html("tr", "", html("td", "left", runs.shown(x, one.value)), html("td", "", one.ordered.length.toLocaleString("en")), ...cells(one).map(figure)));
    table.append(html("thead", "", head), body);
    label(table);
    below.append(html("div", "scroll", table));
  };
  const about = (x, y, shown, count, how) =>
    `${y.title} by ${x.title}: ${shown} ${shown === 1 ? "value" : "values"}${count > shown ? `, the most frequent of ${count}` : ""}. ${how}`;

  /** Means with 95 % intervals by Student's t, as `radrm sweep report` has them. */
  const means = (x, y) => {
    const way = scale(y, "logy"), { largest, count } = grouped(x, y, way);
    begin();
    points = [];
    if (!largest.length) { said.textContent = "No run of the filter has both figures."; return; }
    const all = largest.map(([value, found]) => {
      const n = found.length, mean = found.reduce((sum, one) => sum + one, 0) / n;
      const squares = found.reduce((sum, one) => sum + (one - mean) ** 2, 0);
      const t = app.data.t95[Math.min(n - 2, app.data.t95.length - 1)];
      return { value, ordered: found, mean, half: n > 1 ? t * Math.sqrt(squares / (n - 1) / n) : null };
    });
    const ends = all.flatMap(({ mean, half }) => [mean - (half ?? 0), mean + (half ?? 0)].filter(way.holds)).map(way.of);
    const toY = yAxis(y, way, range(ends, way.isLog)), floor = bottom;
    places(x, all, ({ mean, half }, middle, wing) => {
      const at = value => way.holds(value) ? round(toY(value)) : floor;
      if (half !== null) add("path", { class: "mean", d: `M${middle} ${at(mean - half)}V${at(mean + half)}M${round(middle - wing / 2)} ${at(mean - half)}h${round(wing)}M${round(middle - wing / 2)} ${at(mean + half)}h${round(wing)}` });
      add("path", { class: "dot c0", d: `M${middle} ${at(mean)}h0` });
    });
    tabulate(x, y, all, ["mean", "± (95 %)"], one => [one.mean, one.half]);
    said.textContent = about(x, y, all.length, count, "Means with their 95 % intervals (Student's t); a single run has none.");
  };

  const boxes = (x, y) => {
    const way = scale(y, "logy"), { largest, count } = grouped(x, y, way);
    begin();
    points = [];
    if (!largest.length) { said.textContent = "No run of the filter has both figures."; return; }
    const all = largest.map(([value, found]) => {
      const ordered = found.sort((a, b) => a - b);
      const [q1, median, q3] = [0.25, 0.5, 0.75].map(share => quantile(ordered, share)), reach = 1.5 * (q3 - q1);
      const inside = ordered.filter(one => one >= q1 - reach && one <= q3 + reach);
      return { value, ordered, q1, median, q3, low: inside[0], high: inside[inside.length - 1], outside: ordered.filter(one => one < q1 - reach || one > q3 + reach) };
    });
    const toY = yAxis(y, way, range(all.flatMap(one => [one.ordered[0], one.ordered[one.ordered.length - 1]].map(way.of)), way.isLog));
    places(x, all, (one, middle, half) => {
      const at = value => round(toY(value));
      add("path", { class: "whisker", d: `M${middle} ${at(one.low)}V${at(one.q1)}M${middle} ${at(one.q3)}V${at(one.high)}` });
      add("rect", { class: "box", x: round(middle - half), y: at(one.q3), width: round(2 * half), height: Math.max(1, round(toY(one.q1) - toY(one.q3))) });
      add("path", { class: "median", d: `M${round(middle - half)} ${at(one.median)}h${round(2 * half)}` });
      if (one.outside.length) add("path", { class: "dot c1", d: one.outside.slice(0, 500).map(value => `M${middle} ${at(value)}h0`).join("") });
    });
    tabulate(x, y, all, ["lowest", "first quartile", "median", "third quartile", "highest"], one => [one.ordered[0], one.q1, one.median, one.q3, one.ordered[one.ordered.length - 1]]);
    said.textContent = about(x, y, all.length, count, "Boxes reach from the first to the third quartile, whiskers to the last run within 1.5 times that.");
  };

  const point = (at, isAloud) => {
    cursor = at;
    tip.hidden = at < 0;
    svg.querySelector(".cursor")?.remove();
    if (at < 0) return;
    const found = points[at], y = app.data.byKey.get(field("y").value), x = app.data.byKey.get(field("x").value);
    const id = app.data.number[found.at], lines = [[y.title, runs.cell(app.data, y, found.at)], [x.title, runs.cell(app.data, x, found.at)], ["command", app.data.byKey.get("command").values[found.at]]];
    add("circle", { class: "cursor", cx: found.x, cy: found.y, r: 7, fill: "none" });
    tip.replaceChildren(html("b", "", `run ${id}`), ...lines.map(([name, value]) => html("span", "", html("i", "", name), html("i", "", value))));
    const room = chart.clientWidth;
    tip.style.left = found.x < room / 2 ? `${found.x + 12}px` : "";
    tip.style.right = found.x < room / 2 ? "" : `${room - found.x + 12}px`;
    if (isAloud) aloud.textContent = [`run ${id}${app.chosen.has(id) ? ", chosen" : ""}`, ...lines.map(line => line.join(" "))].join(", ");
  };
  const toggle = () => {
    const id = app.data.number[points[cursor].at];
    app.choose(id, !app.chosen.has(id));
    aloud.textContent = app.chosen.has(id) ? `run ${id} is chosen` : `run ${id} is not chosen`;
  };
  svg.addEventListener("pointermove", event => {
    const box = chart.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, near = 400;
    points.forEach((one, at) => {
      const far = (one.x - x) ** 2 + (one.y - y) ** 2;
      if (far < near) { near = far; best = at; }
    });
    if (best !== cursor) point(best, false);
  });
  svg.addEventListener("pointerleave", () => point(-1));
  svg.addEventListener("click", () => { if (cursor >= 0) toggle(); });
  chart.addEventListener("blur", () => point(-1));
  chart.addEventListener("keydown", event => {
    if (event.altKey || event.metaKey || event.ctrlKey || !points.length) return;
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageDown: Math.ceil(points.length / 10), PageUp: -Math.ceil(points.length / 10), Home: -Infinity, End: Infinity };
    if (event.key in steps) point(clamp(cursor < 0 && steps[event.key] > 0 ? 0 : cursor + steps[event.key], 0, points.length - 1), true);
    else if (event.key === "Enter" && cursor >= 0) toggle();
    else if (event.key === "Escape") point(-1);
    else return;
    event.preventDefault();
  });

  const draw = () => {
    const x = app.data.byKey.get(field("x").value), y = app.data.byKey.get(field("y").value);
    key.replaceChildren();
    below.replaceChildren();
    const as = field("as").value, isScatter = as === "scatter";
    field("colour").disabled = !isScatter;
    field("logx").disabled = !isScatter || !x || x.isText;
    chart.setAttribute("aria-roledescription", { box: "box plot", mean: "plot of means" }[as] ?? "scatter plot");
    point(-1);
    if (!x || !y) { said.textContent = "There is no run with a figure."; begin(); points = []; return; }
    ({ box: boxes, mean: means }[as] ?? scatter)(x, y);
  };
  for (const name of ["x", "y", "as", "colour", ...LOGS])
    field(name).addEventListener("change", () => {
      const { type, checked, value } = field(name);
      view.set(name, type === "checkbox" ? (checked ? "1" : "") : value);
      draw();
    });
  let before = -1;
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (chart.clientWidth === before || !app.data) return;
    before = chart.clientWidth;
    draw();
  })).observe(chart);
  return { loaded: fill, left: found => { rows = found; draw(); }, draw };
};
