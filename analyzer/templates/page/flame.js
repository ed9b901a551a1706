"use strict";
// Flame graphs of call stacks: the width of a frame is what was held below it. A graph is a tree for screen readers, and its
// figures also stand in the table of lines below it. It follows the interval of the timeline ("radrm-interval").
(() => {
  const source = document.getElementById("stacks");
  if (!source) return;
  const { bytes, time, html } = figures;
  const data = JSON.parse(source.textContent);
  /** Height of a row, and the narrowest frame that is drawn, in pixels. */
  const ROW = 24, NARROWEST = 2;
  /** The narrowest frame that has its name in it. */
  const NAMED = 34;
  const ORIGINS = ["c0", "c2", "c8"];

  const frames = data.frames.map(([name, file, line, origin]) => {
    const [short, whole] = file < 0 ? ["", ""] : data.files[file];
    const place = short && line ? `${short}:${line}` : short;
    return { text: place ? `${name} (${place})` : name, path: whole && line ? `${whole}:${line}` : whole, origin };
  });
  const amount = (n, unit) => unit === "bytes" ? bytes(n) : `${n.toLocaleString("en")} ${n === 1 ? "request" : "requests"}`;
  const signed = (n, unit) => n ? `${n < 0 ? "−" : "+"}${amount(Math.abs(n), unit)}` : "unchanged";
  const percent = share => `${(share * 100).toFixed(1)} %`;
  const total = values => values.reduce((sum, value) => sum + value, 0);
  const words = text => text.toLowerCase().split(/\s+/).filter(Boolean);

  class Flame {
    constructor(box) {
      this.graph = data.graphs[Number(box.dataset.graph)];
      this.views = this.graph.views.slice();
      this.moments = [];
      for (const moment of this.graph.moments ?? []) {
        const before = this.moments.at(-1)?.values;
        this.moments.push({ ...moment, values: moment.values.map((change, leaf) => change + (before?.[leaf] ?? 0)) });
      }
      this.grow();
      this.view = this.views[0];
      this.found = null;
      this.build(box);
      this.show(this.view);
      let before = 0;
      new ResizeObserver(() => requestAnimationFrame(() => {
        if (this.tree.clientWidth === before) return;
        before = this.tree.clientWidth;
        this.draw();
      })).observe(this.tree);
    }

    /** The tree, from depths in the order of visits. */
    grow() {
      const { depth, frame, leaf } = this.graph;
      this.root = { text: this.graph.name, path: "", origin: 2, parent: null, below: [] };
      const path = [this.root];
      this.nodes = depth.map((deep, at) => {
        const node = { ...frames[frame[at]], parent: path[deep], below: [] };
        node.parent.below.push(node);
        path[deep + 1] = node;
        return node;
      });
      this.leaves = leaf.map(at => this.nodes[at]);
    }

    build(box) {
      this.tree = html("div", "flame");
      this.tree.setAttribute("role", "tree");
      this.tree.setAttribute("aria-label", `Call stacks of ${this.graph.name}. Up and down go to the caller and what it called, left and right to its neighbours; Enter zooms in, Escape shows everything.`);
      this.said = html("p", "interval");
      this.said.setAttribute("role", "status");
      this.pointed = html("p", "interval pointed");
      this.pointed.setAttribute("aria-hidden", "true");
      const tools = html("div", "tools");
      if (this.views.length + (this.moments.length ? 1 : 0) > 1) {
        this.choice = html("select");
        for (const view of this.views) this.choice.append(new Option(view.label, view.id));
        if (this.moments.length) this.choice.append(new Option("held in the interval shown", "interval"));
        this.choice.addEventListener("change", () => this.choose(this.choice.value));
        tools.append(html("label", "", "memory ", this.choice));
      }
      this.field = html("input");
      this.field.type = "search";
      this.field.addEventListener("input", () => { this.search(); this.draw(); this.say(); });
      this.reset = html("button", "", "show all");
      this.reset.type = "button";
      this.reset.addEventListener("click", () => this.zoom(this.root));
      tools.append(html("label", "", "find frames ", this.field), this.reset);
      box.append(tools, this.key(), this.tree, this.said, this.pointed);
      this.tree.addEventListener("click", event => this.at(event, node => this.zoom(node)));
      this.tree.addEventListener("pointermove", event => this.at(event, node => this.point(node)));
      this.tree.addEventListener("pointerleave", () => this.point(null));
      this.tree.addEventListener("focusin", event => this.at(event, node => this.point(node)));
      this.tree.addEventListener("keydown", event => { if (this.press(event)) event.preventDefault(); });
      this.link(box);
      document.addEventListener("radrm-interval", event => this.follow(event.detail));
    }
    key() {
      const key = html("div", "key");
      const names = this.views.some(view => view.before)
        ? [["c1", "grew"], ["c0", "shrank"], ["c8", "unchanged"]]
        : [["c0", "Python"], ["c2", "native code"], ["c8", "no frame"]];
      for (const [colour, name] of names) key.append(html("span", "", html("span", `swatch ${colour}`), name));
      return key;
    }
    /** Rows of the table of lines find their frames. */
    link(box) {
      this.lines = box.parentElement.querySelector("table");
      this.rows = [...box.parentElement.querySelectorAll("tr[data-line]")];
      for (const row of this.rows) row.peak = [1, 2].map(column => [row.cells[column]?.textContent, row.cells[column]?.dataset.v]);
      for (const row of this.rows) {
        const cell = row.querySelector(".name"), button = html("button", "line", ...cell.childNodes);
        button.type = "button";
        button.title = "Find its frames in the graph";
        cell.append(button);
        button.addEventListener("click", () => {
          this.field.value = button.textContent;
          this.zoomed = this.root;
          this.search();
          this.draw();
          this.say();
          this.tree.scrollIntoView({ block: "nearest" });
        });
      }
    }

    choose(id) {
      this.show(id === "interval" ? this.highest() : this.views.find(view => view.id === id) ?? this.views[0]);
    }
    /** Of the moments in the interval shown the one in which most was held. */
    highest() {
      const { from = 0, to = Infinity } = this.interval ?? {};
      const peak = this.views.find(view => view.id === "peak");
      const known = [...this.moments, ...(peak ? [peak] : [])].filter(moment => moment.t >= from && moment.t <= to);
      const best = known.reduce((best, moment) => total(moment.values) > total(best?.values ?? [-1]) ? moment : best, null);
      const label = best ? `held at ${time(best.t)}, the most of ${known.length} recorded ${known.length === 1 ? "moment" : "moments"} of the interval` : "";
      return { id: "interval", label, unit: "bytes", values: best?.values ?? this.leaves.map(() => 0) };
    }
    /** The table shows the moment that the graph does, where that is one of the interval; else the peak. */
    table() {
      const head = this.lines?.tHead.rows[0].cells[1], isInterval = this.view.id === "interval";
      if (!head || this.view.before) return;
      const caption = this.lines.caption ?? this.lines.createCaption();
      const whole = this.views[0], at = whole.t === undefined ? "" : ` (${time(whole.t)})`;
      if (!this.moments.length) {
        const missing = this.interval ? " What lines held in the interval shown is not recorded." : "";
        caption.textContent = `${whole.label[0].toUpperCase()}${whole.label.slice(1)}${at}.${missing}`;
        return;
      }
      const held = new Map();
      if (isInterval) this.leaves.forEach((_, leaf) => held.set(this.graph.line[leaf], (held.get(this.graph.line[leaf]) ?? 0) + this.view.values[leaf]));
      const all = isInterval ? total(this.view.values) : 0, isKnown = Boolean(this.view.label);
      let listed = 0;
      for (const row of this.rows) {
        const value = held.get(Number(row.dataset.line)) ?? 0, end = Number(row.cells[3].dataset.v);
        const texts = !isInterval ? row.peak : isKnown ? [[bytes(value), value], [percent(value / Math.max(all, 1)), value]] : [["-", -1], ["-", -1]];
        texts.forEach(([text, v], column) => { row.cells[column + 1].textContent = text; row.cells[column + 1].dataset.v = v; });
        // Lines that held something at other moments only.
        row.classList.toggle("none", isInterval ? !value && !Number(row.peak[0][1]) && !end : !Number(row.peak[0][1]) && !end);
        listed += value;
      }
      const name = isInterval ? "in the interval" : "at the peak";
      (head.querySelector("button") ?? head).textContent = name;
      for (const row of this.rows) row.cells[1].dataset.label = name;
      const rest = all - listed > 0 ? ` ${bytes(all - listed)} of it is of lines that are not listed.` : "";
      caption.textContent = !isInterval ? `At the peak${at}: ${bytes(total(whole.values))}.`
        : isKnown ? `In the interval: ${this.view.label}: ${bytes(all)}.${rest} The other columns are of the whole run.`
        : "No moment of the interval shown is recorded. The other columns are of the whole run.";
      this.lines.dispatchEvent(new CustomEvent("radrm-rows"));
    }
    /** The timeline shows another interval. */
    follow(interval) {
      this.interval = interval.whole ? null : interval;
      if (this.moments.length) {
        if (this.view.id === "interval" || this.view.id === "peak") this.choose(interval.whole ? "peak" : "interval");
        return;
      }
      this.say();
      this.table();
    }
    show(view) {
      this.view = view;
      if (this.choice) this.choice.value = view.id;
      for (const node of [this.root, ...this.nodes]) node.value = node.before = node.wide = 0;
      this.leaves.forEach((leaf, at) => {
        const value = view.values[at], before = view.before?.[at] ?? 0;
        for (let node = leaf; node; node = node.parent) {
          node.value += value;
          node.before += before;
          // Where two runs are compared nothing disappears: what is gone has the width that it had.
          node.wide += view.before ? Math.max(value, before) : value;
        }
      });
      if (!this.zoomed?.wide) this.zoomed = this.root;
      this.search();
      this.draw();
      this.say();
      this.table();
    }

    zoom(node) {
      this.zoomed = node;
      this.current = node;
      this.draw();
      this.say();
    }
    figure(node) {
      const { unit, before } = this.view, of = this.root;
      if (!before) return `${amount(node.value, unit)}, ${percent(node.value / Math.max(of.value, 1))}`;
      return `${amount(node.before, unit)} before, ${amount(node.value, unit)} after: ${signed(node.value - node.before, unit)}`;
    }
    search() {
      const wanted = words(this.field.value);
      this.found = null;
      if (!wanted.length) return;
      const matches = node => { const text = node.text.toLowerCase(); return wanted.every(word => text.includes(word)); };
      this.found = { nodes: new Set(), value: 0, before: 0 };
      // What is below a frame that matches is part of it already.
      const visit = (node, inside) => {
        const here = node !== this.root && node.wide > 0 && matches(node);
        if (here) this.found.nodes.add(node);
        if (here && !inside) { this.found.value += node.value; this.found.before += node.before; }
        for (const below of node.below) visit(below, inside || here);
      };
      visit(this.root, false);
    }

    draw() {
      const wide = this.tree.clientWidth;
      if (!wide) return;
      const above = [], drawn = [], had = this.tree.contains(document.activeElement);
      for (let node = this.zoomed; node; node = node.parent) above.unshift(node);
      above.forEach((node, row) => drawn.push({ node, row, left: 0, share: 1 }));
      const lay = (parent, row, left) => {
        for (const node of parent.below) {
          const share = node.wide / Math.max(this.zoomed.wide, 1);
          if (share * wide >= NARROWEST) {
            drawn.push({ node, row, left, share });
            lay(node, row + 1, left);
          }
          left += share;
        }
      };
      lay(this.zoomed, above.length, 0);
      this.shown = new Map(drawn.map(one => [one.node, one]));
      if (!this.shown.has(this.current)) this.current = this.zoomed;
      this.tree.style.height = `${(Math.max(...drawn.map(one => one.row)) + 1) * ROW}px`;
      this.tree.replaceChildren(...drawn.map(one => this.frame(one, wide)));
      if (had) this.shown.get(this.current).element.focus({ preventScroll: true });
    }
    frame(one, wide) {
      const { node, row, left, share } = one, { before, unit } = this.view;
      const colour = before && node !== this.root
        ? node.value > node.before ? "c1" : node.value < node.before ? "c0" : "c8"
        : ORIGINS[node.origin];
      const is_found = !this.found || this.found.nodes.has(node);
      const element = html("div", `frame ${is_found ? colour : "faint"}`);
      const change = before && node.value !== node.before ? `${signed(node.value - node.before, unit)} ` : "";
      if (share * wide < NAMED) element.classList.add("narrow");
      else element.textContent = node === this.root ? `${node.text}: ${this.figure(node)}` : change + node.text;
      Object.assign(element.style, { left: `${left * 100}%`, width: `${share * 100}%`, top: `${row * ROW}px` });
      const siblings = node.parent ? node.parent.below.filter(other => this.shown.has(other)) : [node];
      const attributes = {
        role: "treeitem", "aria-level": row + 1, "aria-setsize": siblings.length, "aria-posinset": siblings.indexOf(node) + 1,
        "aria-label": `${node.text}, ${this.figure(node)}`, "aria-selected": node === this.zoomed && node !== this.root,
        tabindex: node === this.current ? 0 : -1,
      };
      if (node.below.some(below => this.shown.has(below))) attributes["aria-expanded"] = true;
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.title = [node.text, this.figure(node), node.path].filter(Boolean).join("\n");
      element.node = node;
      one.element = element;
      return element;
    }

    /** Calls `act` with the frame that an event is about. */
    at(event, act) {
      const node = event.target.closest?.(".frame")?.node;
      if (node) act(node);
    }
    point(node) {
      this.pointed.textContent = node ? [node.text, this.figure(node), node.path].filter(Boolean).join(" · ") : "";
    }
    press(event) {
      if (event.altKey || event.metaKey || event.ctrlKey) return false;
      const node = this.current, is_shown = other => other && this.shown.has(other);
      const beside = way => {
        const row = (node.parent ?? { below: [node] }).below.filter(is_shown);
        return row[row.indexOf(node) + way];
      };
      const next = {
        ArrowUp: () => node.parent,
        ArrowDown: () => node.below.filter(is_shown).sort((a, b) => b.wide - a.wide)[0],
        ArrowLeft: () => beside(-1),
        ArrowRight: () => beside(1),
        Home: () => this.root,
      }[event.key];
      if (next) {
        const to = next();
        if (is_shown(to)) this.focus(to);
        return true;
      }
      if (event.key === "Enter" || event.key === " ") { this.zoom(node); return true; }
      if (event.key === "Escape") { this.zoom(this.root); return true; }
      return false;
    }
    focus(node) {
      this.shown.get(this.current)?.element.setAttribute("tabindex", -1);
      this.current = node;
      const { element } = this.shown.get(node);
      element.setAttribute("tabindex", 0);
      element.focus();
    }

    /** What is shown, as a sentence; and the lines of the table that are part of it. */
    say() {
      const { unit, label, before } = this.view, parts = [];
      const all = this.root;
      if (this.view.id === "interval" && !label) parts.push("no moment of this interval is recorded: choose a longer one");
      else parts.push(before ? this.figure(all) : `${label}${this.view.t === undefined ? "" : ` (${time(this.view.t)})`}: ${amount(all.value, unit)}`);
      if (this.interval && !this.moments.length && this.view.id === "peak") {
        const is_inside = this.view.t >= this.interval.from && this.view.t <= this.interval.to;
        parts.push(is_inside ? "the peak lies in the interval shown" : "what was held in the interval shown is not recorded");
      }
      if (this.zoomed !== all) parts.push(`${this.zoomed.text}: ${this.figure(this.zoomed)}`);
      if (this.found) {
        const { nodes, value, before: was } = this.found;
        const sum = before ? `${amount(was, unit)} before, ${amount(value, unit)} after` : `${amount(value, unit)}, ${percent(value / Math.max(all.value, 1))}`;
        parts.push(nodes.size ? `${nodes.size} ${nodes.size === 1 ? "frame" : "frames"} found: ${sum}` : "no frame found");
      }
      this.said.textContent = parts.join(" · ");
      this.reset.disabled = this.zoomed === all;
      const inside = new Set();
      this.leaves.forEach((leaf, at) => {
        let node = leaf;
        while (node && node !== this.zoomed) node = node.parent;
        if (node && leaf.wide > 0) inside.add(this.graph.line[at]);
      });
      for (const row of this.rows) row.classList.toggle("outside", !inside.has(Number(row.dataset.line)));
    }
  }

  for (const box of document.querySelectorAll(".flamebox")) new Flame(box);
})();
