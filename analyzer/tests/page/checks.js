  const narrow = innerWidth < 640;
  const chart = one(".chart.memory"), svg = one("svg", chart), interval = () => one(".interval").textContent;
  const pointer = (type, share) => {
    const box = svg.getBoundingClientRect();
    svg.dispatchEvent(new PointerEvent(type, {
      bubbles: true, pointerId: 1, button: 0, clientX: box.left + 66 + (box.width - 76) * share, clientY: box.top + 60,
    }));
  };
  const key = (element, name, shiftKey = false) => element.dispatchEvent(new KeyboardEvent("keydown", { key: name, shiftKey, bubbles: true, cancelable: true }));
  const labels = () => all("text", svg).map(text => text.textContent);
  let announced = 0;
  document.addEventListener("radrm-interval", () => announced++);
  await settle();

  // Pictures.
  check("memory is drawn by kind", all("path.band", svg).length === 4, all("path", svg).length);
  check("text of pictures has its size", all(".chart text").every(text => text.getBoundingClientRect().height > 11), "");
  check("the whole run is shown first", interval() === "0 to 3 min 07 s (all) · 2 refused requests", interval());
  check("nvml's line has its gap", all("path.nvml", svg).length === 2, all("path.nvml", svg).length);
  check("refused requests are marked", all("g.refused", svg).length === 2, "");
  check("a capacity far above is named", labels().some(text => text.startsWith("↑") && text.includes("capacity 140")), labels());
  const quotas = () => all("line.quota", svg).map(line => ["x1", "x2"].map(end => Number(line.getAttribute(end))));
  check("a quota that refused nothing is a line, and so is its change", labels().includes("quota of the job 10.0 GiB") && labels().includes("quota of the job 9.50 GiB"), labels());
  check("a quota's line ends where it changes", quotas().length === 2 && quotas()[0][1] === quotas()[1][0] && Math.abs((quotas()[0][1] - 66) / (quotas()[1][1] - 66) - 150 / 187) < 0.01, quotas());
  check("a quota far above is named", labels().some(text => text.includes("quota of the user 100.0 GiB")), labels());
  check("quotas stand in words too", one(".figures").textContent.includes("quota of the job10.0 GiB; from 2 min 30 s on 9.50 GiB"), one(".figures").textContent);
  one("[name=card]").click();
  await settle();
  check("the card's capacity is a line where it is asked for", all("line.capacity", svg).length === 1, labels());
  one("[name=card]").click();
  check("load is drawn", all(".chart.load path.line").length === 1, all(".chart.load path").length);

  // An interval by pointer.
  pointer("pointermove", 0.5);
  check("figures under the pointer", !one(".tip", chart).hidden && one(".tip", chart).textContent.includes("virtual memory2.00 GiB"), one(".tip", chart).textContent);
  pointer("pointerdown", 0.25); pointer("pointermove", 0.4); pointer("pointermove", 0.5); pointer("pointerup", 0.5);
  await settle();
  const kinds = one("table.kinds"), kind = name => one(`tr[data-kind='${name}']`, kinds).cells[1].textContent;
  check("kinds follow the interval", kind("pool used") === "4.12 GiB" && kind("virtual memory") === "2.00 GiB" && kind("graphs") === "0 B", [kind("pool used"), kind("virtual memory"), kind("graphs")]);
  check("their table says of when it is", kinds.caption.textContent === "At the peak of 46.8 s to 1 min 34 s: 8.21 GiB at 1 min 24 s. The other columns are of the whole run.", kinds.caption.textContent);
  const sitesTable = one("table[aria-label^='Memory by line']");
  const sitesShown = () => [...sitesTable.tBodies[0].rows].filter(row => row.getClientRects().length).map(row => [0, 1, 2].map(cell => row.cells[cell].textContent).join());
  const sitesAtPeak = ["forward (train.py:50),4.03 GiB,49.0 %"];
  const inInterval = sitesTable.caption.textContent;
  check("lines follow the interval", sitesShown()[0].startsWith("load (train.py:20),2.00 GiB,35.1 %"), sitesShown());
  check("their sum is that of the moment", [...sitesTable.tBodies[0].rows].reduce((sum, row) => sum + Number(row.cells[1].dataset.v), 0) === 5836 * 1048576, sitesShown());
  check("their table says which moment it shows", inInterval === "In the interval: held at 1 min 20 s, the most of 2 recorded moments of the interval: 5.70 GiB. The other columns are of the whole run.", inInterval);
  check("its column has the name of what it shows", sitesTable.tHead.rows[0].cells[1].textContent === "in the interval" && sitesTable.tBodies[0].rows[0].cells[1].dataset.label === "in the interval", sitesTable.tHead.textContent);
  const space = one(".addresses"), spaceSaid = () => one("[role=status]", space).textContent, ranges = () => [...one("table", space).tBodies[0].rows].map(row => row.textContent);
  check("the address space follows the interval", spaceSaid() === "At 1 min 20 s, the most of 1 recorded moment of the interval: 3.41 GiB · without an address: virtual memory 2.00 GiB", spaceSaid());
  check("its ranges have blocks and holes", ranges().length === 2 && ranges()[0] === "0x7f00000000001.36 GiB1.11 GiB2256.0 MiB256.0 MiB" && all(".range", space).length === 2, ranges());
  check("a drag zooms into its interval", interval() === "46.8 s to 1 min 34 s · peak 8.21 GiB at 1 min 24 s", interval());
  check("the interval is announced", announced === 1, announced);
  const stacks = one(".stacks"), said = () => one("[role=status]", stacks).textContent;
  check("the flame graph follows the interval", said() === "held at 1 min 20 s, the most of 2 recorded moments of the interval: 5.70 GiB", said());
  const times = from => all("text", from).map(text => text.textContent).filter(text => / (s|min)$/.test(text)).join();
  check("load shows the same interval", times(svg) === times(one(".chart.load")) && times(svg).includes("1:15 min"), times(svg));
  svg.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
  check("a double click shows all", interval().includes("(all)"), interval());
  check("tables show the whole run again", kind("virtual memory") === "2.00 GiB" && kind("graphs") === "300.0 MiB" && kinds.caption.textContent === "At the peak of the whole run.", kinds.caption.textContent);
  check("lines are those of the peak again", sitesShown()[0] === sitesAtPeak[0] && sitesTable.caption.textContent === "At the peak (2 min 06 s): 8.21 GiB." && sitesTable.tHead.rows[0].cells[1].textContent === "at the peak", sitesShown());
  check("the address space is that of the highest moment", spaceSaid().startsWith("At 2 min 40 s, the recorded moment at which most was held: 3.60 GiB (the peak of 8.21 GiB itself was not read)"), spaceSaid());
  const blocks = all(".range", space)[0].children, width = block => block.getBoundingClientRect().width, all_ = width(blocks[0].parentElement);
  check("a block is as wide as its share of the range", blocks.length === 2 && Math.abs(width(blocks[0]) / all_ - 640 / 1596) < 0.01 && Math.abs(width(blocks[1]) / all_ - 700 / 1596) < 0.01, [...blocks].map(width));
  pointer("pointerdown", 0.9); pointer("pointermove", 0.95); pointer("pointermove", 0.99); pointer("pointerup", 0.99);
  await settle();
  check("an interval without a moment says so", spaceSaid().startsWith("no moment of this interval is recorded") && ranges().length === 0, spaceSaid());
  svg.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));

  // The same by keys.
  chart.focus();
  check("a picture can be reached by keys", document.activeElement === chart, "");
  key(chart, "Home"); key(chart, "ArrowRight");
  check("arrows read figures out", one(".out", chart).textContent.includes("device memory"), one(".out", chart).textContent);
  for (let step = 0; step < 5; step++) key(chart, "ArrowRight", true);
  check("shift and arrows choose an interval", all("rect.chosen", svg).length === 1, "");
  key(chart, "Enter");
  const zoomed = interval();
  check("enter zooms into it", !zoomed.includes("(all)"), zoomed);
  key(chart, "PageDown");
  check("page down moves on", interval() !== zoomed, interval());
  key(chart, "Escape"); key(chart, "Escape");
  check("escape shows all", interval().includes("(all)"), interval());
  key(chart, "+"); key(chart, "+");
  check("plus zooms", !interval().includes("(all)"), interval());
  one("[name=all]").click();
  const few = [];
  for (let zoom = 0; zoom < 12; zoom++) {
    const sizes = labels().filter(text => /^[\d.]+ ([KMGT]i)?B$/.test(text)).length;
    const moments = labels().filter(text => text === "0" || /^[\d.:]+ (us|ms|s|min|h|d)$/.test(text)).length;
    if (sizes < 2 || sizes > 6 || moments < 1 || moments > 14) few.push(`${zoom}: ${labels()}`);
    one("[name=in]").click();
  }
  check("axes have few marks at every zoom", few.length === 0, few);
  one("[name=all]").click();

  // Series.
  const by = one("[name=by]"), names = () => all(".key.memory button").map(button => button.textContent);
  check("a key names the kinds", names().slice(0, 4).join() === "device,pool reserved,virtual memory,graphs", names());
  one(".key.memory button").click();
  await settle();
  check("a series can be hidden", all("path.band", svg).length === 3 && one(".key.memory button").getAttribute("aria-pressed") === "false", "");
  by.value = "process";
  by.dispatchEvent(new Event("change", { bubbles: true }));
  check("memory is stacked by process", names()[0] === "4711 python" && all("path.band", svg).length === 2, names());
  by.value = "line";
  by.dispatchEvent(new Event("change", { bubbles: true }));
  check("memory is stacked by line", names().slice(0, 4).join() === "forward (train.py:50),load (train.py:20),[pools: reserved, not handed out],make_weights (train.py:30)" && all("path.band", svg).length >= 4, names());
  check("the device total stays above it", all("path.outline", svg).length === 1 && interval().includes("lines as recorded at some moments"), interval());
  const by_line = JSON.parse(one("script#data").textContent).gpus[0].stacks.find(stack => stack.by === "line");
  const sum = list => list.reduce((sum, n) => sum + n, 0), at_peak = by_line.t.map((_, at) => sum(by_line.series.map(series => sum(series.values.slice(0, at + 1)))));
  check("lines add up to the peak, to the byte", Math.max(...at_peak) === 8410 * 1048576, at_peak);
  pointer("pointermove", 0.5);
  check("figures of lines say when they were recorded", one(".tip", chart).textContent.includes("by line, as recorded at1 min 20 s"), one(".tip", chart).textContent);
  by.value = "kind";
  by.dispatchEvent(new Event("change", { bubbles: true }));
  check("and by kind again", all("path.outline", svg).length === 0 && all("path.band", svg).length === 4, names());

  // Call stacks.
  const tree = one("[role=tree]", stacks), frames = () => all("[role=treeitem]", tree);
  const label = frame => frame.getAttribute("aria-label"), named = text => frames().find(frame => label(frame).startsWith(text));
  const field = one("input[type=search]", stacks), choice = one("select", stacks), sites = () => all("tr[data-line]", stacks);
  const find = text => { field.value = text; field.dispatchEvent(new Event("input", { bubbles: true })); };
  const choose = id => { choice.value = id; choice.dispatchEvent(new Event("change", { bubbles: true })); };
  check("the whole run shows the stacks at the peak", choice.value === "peak" && said() === "held at the peak (2 min 06 s): 8.21 GiB", said());
  check("the outermost frame is all", label(frames()[0]) === "GPU 0, 8.21 GiB, 100.0 %", label(frames()[0]));
  const [graph] = JSON.parse(one("script#stacks").textContent).graphs;
  const peak = graph.views[0].values.reduce((sum, value) => sum + value, 0);
  check("stacks add up to the peak, to the byte", peak === 8410 * 1048576, peak);
  const share = named("step").getBoundingClientRect().width / tree.getBoundingClientRect().width;
  check("a frame is as wide as what it holds", Math.abs(share - 4222 / 8410) < 0.005, share);
  const above = frames().every(frame => {
    const parents = frames().filter(other => Number(other.getAttribute("aria-level")) === Number(frame.getAttribute("aria-level")) - 1);
    const box = frame.getBoundingClientRect();
    return frame === frames()[0] || parents.some(parent => {
      const around = parent.getBoundingClientRect();
      return around.left <= box.left + 0.5 && around.right >= box.right - 0.5 && Math.abs(around.bottom - box.top) < 1;
    });
  });
  check("each frame lies below its caller", above, "");
  named("step").click();
  check("a click zooms into a frame", said().endsWith("step (train.py:40): 4.12 GiB, 50.2 %") && named("step").getBoundingClientRect().width > tree.clientWidth - 1, said());
  check("lines outside of it are marked", sites().length === 6 && sites().filter(row => row.classList.contains("outside")).length === 4, sites().length);
  check("its neighbours are gone", !named("load"), "");
  const focused = () => document.activeElement.getAttribute("aria-label") ?? "";
  frames()[0].focus();
  key(document.activeElement, "Escape");
  check("escape shows all frames", Boolean(named("load")) && one(".stacks button:not(.line)").disabled, "");
  key(document.activeElement, "ArrowDown"); key(document.activeElement, "ArrowDown");
  check("down goes to what holds most", focused().startsWith("step (train.py:40)"), focused());
  key(document.activeElement, "ArrowRight");
  check("right goes to the neighbour", focused().startsWith("load (train.py:20)"), focused());
  check("one frame is in the order of tabs", all("[tabindex='0']", tree).length === 1, all("[tabindex='0']", tree).length);
  key(document.activeElement, "Enter");
  check("enter zooms and keeps the focus", said().includes("load (train.py:20): 2.63 GiB") && focused().startsWith("load"), said());
  key(document.activeElement, "ArrowUp");
  check("up goes to the caller", focused().startsWith("<module>"), focused());
  key(document.activeElement, "Escape");
  find("train.py:20");
  check("a search adds up what it finds", said().endsWith("1 frame found: 2.63 GiB, 32.0 %") && all(".faint", tree).length > 3, said());
  find("train.py");
  check("what lies inside of a match counts once", said().endsWith("6 frames found: 6.75 GiB, 82.2 %"), said());
  find("no such");
  check("a search that finds nothing says so", said().endsWith("no frame found"), said());
  one("button", sites()[0]).click();
  check("a line of the table finds its frames", field.value === "forward (train.py:50)" && said().endsWith("1 frame found: 4.03 GiB, 49.0 %"), said());
  find("");
  choose("end");
  check("what is held at exit is shown", said() === "still held at exit: 4.09 GiB", said());
  choose("refused");
  check("refused requests are shown", said() === "refused requests: 2 requests" && Boolean(named("forward")), said());
  choose("interval");
  check("of all moments the peak is the highest", said() === "held at 2 min 20 s, the most of 11 recorded moments of the interval: 8.21 GiB", said());
  choose("peak");
  named("backward").dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
  check("a frame's figures are under the pointer", one(".pointed", stacks).textContent.includes("backward (train.py:60) · 100.0 MiB"), one(".pointed", stacks).textContent);

  // Tables.
  const kernels = one("table[aria-label=Kernels]"), rows = () => [...kernels.tBodies[0].rows].filter(row => row.getClientRects().length);
  const search = one("input[aria-label='Search in Kernels']");
  search.value = "gemm kernel_7";
  search.dispatchEvent(new Event("input", { bubbles: true }));
  check("a search leaves what has all its words", rows().length === 1 && rows()[0].textContent.includes("gemm_kernel_7"), rows().length);
  check("the search says how many", one("[role=status]", search.closest(".tools")).textContent === "1 of 12", "");
  search.value = "";
  search.dispatchEvent(new Event("input", { bubbles: true }));
  check("an empty search shows all rows", rows().length === 12, rows().length);
  const launches = () => rows().map(row => Number([...row.cells].find(cell => cell.dataset.label === "launches").dataset.v));
  const head = all("th", kernels).find(th => th.textContent === "launches");
  one("button", head).click();
  check("a click on a column sorts by it", launches().every((n, at, list) => !at || list[at - 1] <= n) && head.getAttribute("aria-sort") === "ascending", launches());
  one("button", head).click();
  check("and the other way around", launches().every((n, at, list) => !at || list[at - 1] >= n), launches());

  // Layout.
  all("details").forEach(details => details.open = true);
  await settle();
  check("the page is not wider than the window", document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollWidth);
  const cut = all(".scroll").filter(scroll => scroll.scrollWidth > scroll.clientWidth + 1).map(scroll => scroll.getAttribute("aria-label"));
  check("no table is cut", cut.length === 0, cut);
  const extent = cell => { const range = document.createRange(); range.selectNodeContents(cell); return range.getBoundingClientRect(); };
  const touching = [], shifted = [];
  if (!narrow) for (const table of all("table")) {
    for (const row of table.rows) for (let at = 1; at < row.cells.length; at++) {
      const [a, b] = [extent(row.cells[at - 1]), extent(row.cells[at])];
      if (a.width && b.width && b.left - a.right < 8) touching.push(row.textContent);
    }
    const first = table.tBodies[0].rows[0];
    [...table.tHead.rows[0].cells].forEach((th, at) => {
      if (getComputedStyle(th).textAlign !== getComputedStyle(first.cells[at]).textAlign) shifted.push(th.textContent);
    });
  }
  check("cells have room between them", touching.length === 0, touching.slice(0, 3));
  check("heads stand over their columns", shifted.length === 0, shifted);
  if (narrow) check("figures have the name of their column beside them", getComputedStyle(rows()[0].cells[1], "::before").content === '"launches"' || getComputedStyle(rows()[0].cells[1], "::before").content.length > 4, getComputedStyle(rows()[0].cells[1], "::before").content);
  const valued = one("table[aria-label^='What process']");
  check("what has no value stands apart", !valued || !valued.textContent.includes("n/a"), "");
