"use strict";
// Address space: blocks and the holes between them, a row for each range of addresses, at the recorded moment of the interval at
// which most was held. It follows the interval of the timeline ("radrm-interval").
(() => {
  const source = document.getElementById("spaces");
  if (!source) return;
  const { bytes, time, html, round } = figures;
  const spaces = JSON.parse(source.textContent);
  /** Ranges that are drawn; all are in the table. */
  const DRAWN = 8;
  /** What has an address, by the number of its colour. */
  const KINDS = ["device", "handed out by pools"];
  /** Numbers of a run. */
  const WORDS = 5;

  class Addresses {
    constructor(box) {
      this.space = spaces[Number(box.dataset.space)];
      this.box = box;
      this.said = box.querySelector("[role=status]");
      this.whole = this.said.textContent;
      this.show(this.highest(this.space.moments), this.whole);
      document.addEventListener("radrm-interval", event => this.follow(event.detail));
    }
    highest(moments) { return moments.reduce((best, moment) => moment.total > (best?.total ?? -1) ? moment : best, null); }
    follow({ from, to, whole }) {
      if (whole) { this.show(this.highest(this.space.moments), this.whole); this.table(); return; }
      const known = this.space.moments.filter(moment => moment.t >= from && moment.t <= to), best = this.highest(known);
      if (!best) {
        this.show(null, "no moment of this interval is recorded: choose a longer one");
      } else {
        const parts = [`At ${time(best.t)}, the most of ${known.length} recorded ${known.length === 1 ? "moment" : "moments"} of the interval: ${bytes(best.total)}`];
        if (best.elsewhere.length) parts.push(`without an address: ${best.elsewhere.map(([name, n]) => `${name} ${bytes(n)}`).join(", ")}`);
        this.show(best, parts.join(" · "));
      }
      this.table();
    }
    show(moment, text) {
      this.moment = moment;
      if (this.said.textContent !== text) this.said.textContent = text;
      const ranges = (moment?.ranges ?? []).slice().sort((a, b) => b.held - a.held);
      const drawn = new Set(ranges.flatMap(range => range.runs.filter((_, at) => at % WORDS === WORDS - 1)));
      const named = KINDS.map((name, colour) => [name, colour]).filter(([, colour]) => drawn.has(colour));
      const key = html("div", "key", ...named.map(([name, colour]) => html("span", "", html("span", `swatch c${colour}`), name)));
      this.box.querySelector(".ranges").replaceChildren(...ranges.slice(0, DRAWN).map(range => this.range(range)), key);
    }
    range(range) {
      const bar = html("div", "range"), parts = [];
      let at = 0;
      for (let run = 0; run < range.runs.length; run += WORDS) {
        const [gap, span, holes, blocks, colour] = range.runs.slice(run, run + WORDS);
        at += gap;
        parts.push({ at, span, holes, blocks, colour });
        at += span;
      }
      const share = n => `${round(n / Math.max(range.span, 1) * 1000) / 10}%`;
      for (const { at, span, holes, blocks, colour } of parts) {
        const block = html("span", `c${colour}`);
        Object.assign(block.style, { left: share(at), width: share(span) });
        const address = `0x${(range.address + at).toString(16)}`;
        block.title = blocks === 1 ? `${bytes(span)} at ${address}` : `${blocks} blocks in ${bytes(span)} at ${address}, of it ${bytes(holes)} in holes`;
        bar.append(block);
      }
      return html("div", "", html("p", "soft", `0x${range.address.toString(16)} · ${bytes(range.held)} of ${bytes(range.span)}`), bar);
    }
    table() {
      const table = this.box.querySelector("table");
      const row = range => {
        const cells = [`0x${range.address.toString(16)}`, bytes(range.span), bytes(range.held), range.blocks.toLocaleString("en"), bytes(range.holes), bytes(range.largest)];
        return html("tr", "", ...cells.map((text, at) => html("td", at ? "" : "left", text)));
      };
      table.tBodies[0].replaceChildren(...(this.moment?.ranges ?? []).map(row));
      label(table);
    }
  }

  for (const box of document.querySelectorAll(".addresses")) new Addresses(box);
})();
