// Runs inside of the page; a line for each check.
(async () => {
  const lines = [];
  const check = (name, holds, detail = "") => lines.push(`${holds ? "ok" : "FAILED"} ${name} ${holds ? "" : detail}`.trim());
  const settle = (ms = 200) => new Promise(done => setTimeout(done, ms));
  const until = async (what, holds) => { for (let at = 0; at < 400 && !holds(); at++) await settle(25); check(what, holds()); };
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const one = (selector, from = document) => from.querySelector(selector);
  const rows = () => all("#list tbody tr"), found = () => one("#found").textContent;
  const cells = title => rows().map(row => [...row.cells].find(cell => cell.dataset.label === title).textContent);
  const filter = async text => { const field = one("[name=filter]"); field.value = text; field.dispatchEvent(new Event("input", { bubbles: true })); await settle(); };
  const head = title => all("#list th").find(th => th.textContent === title);
  const pick = async (name, value) => { const field = one(`#relations [name=${name}]`); field.value = value; field.dispatchEvent(new Event("change", { bubbles: true })); await settle(50); };

  // The table.
  check("all runs are counted", found() === "400 of 400 runs", found());
  check("a page of the table has a hundred rows", rows().length === 100, rows().length);
  check("the newest run comes first", cells("run")[0] === "400", cells("run").slice(0, 3));
  check("varied options are columns", Boolean(head("--lr")), all("#list th").map(th => th.textContent));
  check("an upper bound says so", all("#list tbody td").some(cell => cell.textContent.startsWith("≤ ")), "");
  check("markup of a command is text", !window.evil && cells("command").some(text => text.includes("<img src=x onerror=")), cells("command").slice(0, 3));
  one("[name=after]").click();
  check("the next page follows", one("#page").textContent === "101 to 200 of 400" && cells("run")[0] === "300", one("#page").textContent);
  await filter("batch=64 outcome=ok");
  check("a filter by figures and words", found() === "LEFT_BY_FILTER of 400 runs", found());
  check("and begins at its first page", one("#page").textContent.startsWith("1 to "), one("#page").textContent);
  await filter("batch=64 peak>=8GiB time<2min node3");
  check("units and words are understood", rows().length > 0 && rows().length < 30, found());
  await filter("peak>heavy");
  check("what is not an amount is said", found() === "peak: heavy is not an amount", found());
  await filter("bacth=64");
  check("an unknown name is reported", found() === "bacth is no figure or parameter of these runs: did you mean batch?", found());
  await filter("lr=0.1 batch=8");
  check("an option is found without its dashes", rows().length > 0 && cells("--lr").every(text => text === "0.1"), found());
  check("the address has the filter", location.hash.endsWith("&filter=lr%3D0.1+batch%3D8"), location.hash);
  await filter("no-such-word");
  check("a filter can leave nothing", found() === "0 of 400 runs" && rows().length === 0, found());
  await filter("");
  const sort = async title => { one("button", head(title)).click(); await settle(50); };
  await sort("batch");
  check("a click orders by a column", cells("batch").every(text => text === "64") && head("batch").getAttribute("aria-sort") === "descending", cells("batch").slice(0, 3));
  await sort("batch");
  check("and the other way around", cells("batch").every(text => text === "8") && head("batch").getAttribute("aria-sort") === "ascending", "");
  check("the head keeps the focus", document.activeElement === one("button", head("batch")), document.activeElement.outerHTML);
  await sort("SM activity"); await sort("SM activity");
  check("what is not measured comes last", cells("SM activity").every(text => text !== "n/a"), "");
  await sort("started (UTC)");
  check("and back to the newest", cells("run")[0] === "400", cells("run")[0]);
  const columns = all(".columns label").find(label => label.textContent === " host");
  one("input", columns).click();
  check("a column can be added", cells("host")[0].startsWith("node"), "");
  one("input", columns).click();

  const heights = new Set(rows().slice(0, -1).map(row => Math.round(row.getBoundingClientRect().height)));
  check("a run is one line", innerWidth < 640 || heights.size === 1, [...heights]);
  check("and what is cut is in its title", cells("command")[0] === all("#list tbody td.name")[0].title, "");

  // Curves.
  one("[name=choose]").click();
  await until("the first 20 are drawn, each figure", () => all("#overlay .chart path.line").length === 80);
  check("memory comes first", all("#overlay h3").map(h3 => h3.textContent).join() === "GPU memory,SM activity,Steps per second,Power", all("#overlay h3").map(h3 => h3.textContent));
  const key = all("#overlay .key button");
  check("a key names the runs", key.length === 20 && key[0].textContent.startsWith("run 400 python3 train.py"), key[0]?.textContent);
  const styles = new Set(all("#overlay .key path").map(path => path.getAttribute("class") + path.getAttribute("stroke-dasharray")));
  check("no two look the same", styles.size === 20, styles.size);
  key[0].click();
  await settle(50);
  check("a run can be hidden", all("#overlay .chart path.line").length === 76 && key[0].getAttribute("aria-pressed") === "false", all("#overlay .chart path.line").length);
  key[0].click();
  const table = one("#overlay table");
  check("means are a table", table.tBodies[0].rows.length === 20 && /^10 \/s$/.test(table.tBodies[0].rows[0].cells[5].textContent), table.tBodies[0].rows[0].textContent);
  const chart = one("#overlay .chart"), labels = () => all("text", chart).map(text => text.textContent);
  const press = (name, shiftKey = false) => chart.dispatchEvent(new KeyboardEvent("keydown", { key: name, shiftKey, bubbles: true, cancelable: true }));
  press("+");
  check("plus zooms into all pictures", !labels().includes("0"), labels());
  press("Escape");
  check("escape shows all", labels().includes("0"), labels());
  const boxes = all("#list tbody input");
  boxes[20].click();
  await settle(50);
  check("no more than twenty", !boxes[20].checked && one("#overlay .said").textContent.includes("no more than 20"), one("#overlay .said").textContent);
  one("[name=clear]").click();
  await until("choosing none draws none", () => all("#overlay .chart").length === 0);
  all("#list tbody input")[24].click();
  await until("a lost profile says so", () => one("#overlay .bad")?.textContent.includes("No such file or directory"));
  one("[name=clear]").click();
  await settle();

  // Figures by parameters.
  const dots = () => all("#relations path.dot").reduce((sum, path) => sum + path.getAttribute("d").split("M").length - 1, 0);
  check("points of all runs", dots() === 400, dots());
  await pick("colour", "--lr");
  check("coloured by an option", all("#relations path.dot").length === 2 && all("#relations .key span.swatch").length === 2, all("#relations path.dot").length);
  await pick("colour", "");
  await pick("x", "host");
  check("by a text", all("#relations .chart text").some(text => text.textContent === "node3") || innerWidth < 640, all("#relations .chart text").map(text => text.textContent));
  await pick("x", "batch");
  await pick("as", "box");
  const boxed = all("#relations table tbody tr");
  check("boxes by value, with their table", all("#relations rect.box").length === 4 && boxed.length === 4 && boxed[0].cells[0].textContent === "8" && boxed[0].cells[1].textContent === "100", boxed.map(row => row.textContent));
  await filter("batch=8");
  check("figures are of the runs that the filter leaves", all("#relations rect.box").length === 1, all("#relations rect.box").length);
  await filter("");
  await pick("as", "mean");
  const averaged = all("#relations table tbody tr");
  check("means with intervals by value", all("#relations path.mean").length === 4 && averaged.length === 4 && averaged[0].cells.length === 4 && averaged[0].cells[1].textContent === "100", averaged.map(row => row.textContent));
  await pick("as", "scatter");
  check("and points again", dots() === 400, dots());
  one("[name=logy]").click();
  await settle(50);
  check("a log scale has all points, and powers of two of bytes", dots() === 400 && all("#relations .chart text").some(text => text.textContent === "4 GiB"), all("#relations .chart text").map(text => text.textContent));
  one("[name=logy]").click();
  await pick("colour", "batch");
  check("a legend is in the order of its numbers", all("#relations .key > span").map(span => span.textContent).join() === "8,16,32,64", all("#relations .key > span").map(span => span.textContent));
  await pick("colour", "");

  // Interference.
  const matrix = one("#matrices table");
  check("interference is a matrix", matrix.tBodies[0].rows.length === 2 && matrix.textContent.includes("2.00x") && matrix.textContent.includes("1.25x"), matrix?.textContent);

  // Layout, theme and names.
  await settle();
  check("the page is not wider than the window", document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollWidth);
  if (innerWidth < 640) check("figures have the name of their column beside them", getComputedStyle(rows()[0].cells[2], "::before").content.length > 4, getComputedStyle(rows()[0].cells[2], "::before").content);
  const background = () => getComputedStyle(document.body).backgroundColor, before = background();
  one("#theme").click();
  check("the theme changes", background() !== before, before);
  one("#theme").click();
  check("and changes back", background() === before, background());
  const unnamed = all("button, input, select, a, [tabindex='0'], table").filter(element =>
    !(element.getAttribute("aria-label") || element.textContent.trim() || element.labels?.[0]?.textContent.trim()));
  check("everything that can be used has a name", unnamed.length === 0, unnamed.map(element => element.outerHTML.slice(0, 80)));
  const roles = all("table").filter(table => table.getAttribute("role") !== "table" || all("td", table).some(cell => cell.getAttribute("role") !== "cell"));
  check("tables are tables to a screen reader", roles.length === 0, roles.length);
  lines.push("ok the end");
  return lines.join("\n");
})()
