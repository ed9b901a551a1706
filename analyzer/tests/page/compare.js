  await settle();

  const stacks = one(".stacks"), tree = one("[role=tree]", stacks), said = () => one("[role=status]", stacks).textContent;
  const frames = () => all("[role=treeitem]", tree), label = frame => frame.getAttribute("aria-label");
  const named = text => frames().find(frame => label(frame).startsWith(text));
  check("both peaks and the change are said", said() === "8.21 GiB before, 8.07 GiB after: −150.0 MiB", said());
  const shrank = named("make_weights (train.py:30)");
  check("what shrank has its colour and its sign", shrank.classList.contains("c0") && label(shrank).endsWith("640.0 MiB before, 440.0 MiB after: −200.0 MiB"), label(shrank));
  const moved = named("step (train.py:42)");
  check("a line that moved is compared with itself", moved.classList.contains("c8") && label(moved).endsWith(": unchanged"), label(moved));
  check("and is there once", frames().filter(frame => label(frame).startsWith("step")).length === 1, frames().map(label));
  const grew = named("forward (train.py:77)");
  check("what is new grew", grew.classList.contains("c1") && label(grew).includes("0 B before, 50.0 MiB after"), label(grew));
  named("load").click();
  check("a click zooms", said().includes("load (train.py:20)") && !named("step"), said());
  one(".stacks .tools button").click();
  check("show all shows all", Boolean(named("step")), "");
  const rows = all("tr[data-line]", stacks);
  check("the table has the lines that changed", rows.map(row => row.cells[0].textContent).join() === "make_weights (train.py:30),forward (train.py:77)", rows.map(row => row.textContent));
  one("button", rows[1]).click();
  check("a line finds its frames", said().endsWith("1 frame found: 0 B before, 50.0 MiB after"), said());

  check("the page is not wider than the window", document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollWidth);
