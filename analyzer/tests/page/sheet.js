  await settle();

  const picture = one("svg[role=img]"), table = one("table.data");
  const dots = all("circle", picture), lefts = () => [...table.tBodies[0].rows].map(row => row.cells[0].textContent).join();
  check("a picture is named by what it shows", picture.getAttribute("aria-label") === "3 configurations by run time and peak memory; no other beats fast; small", picture.getAttribute("aria-label"));
  check("each configuration is a point with its figures", dots.map(dot => dot.textContent).join() === "fast: 1 s, 9 GiB,small: 3 s, 1 GiB,beaten: 4 s, 9 GiB", dots.map(dot => dot.textContent));
  check("those that no other beats are filled", dots.map(dot => getComputedStyle(dot).fill === getComputedStyle(dot).stroke).join() === "true,true,false", dots.map(dot => getComputedStyle(dot).fill));
  check("the pictures have no figure that the table has not", dots.every(dot => [...table.tBodies[0].rows].some(row => dot.textContent.startsWith(row.cells[0].textContent))), "");
  const heads = [...table.tHead.rows[0].cells];
  one("button", heads[2]).click();
  check("a click sorts by the figure and not by its text", lefts() === "fast,beaten,small" && heads[2].getAttribute("aria-sort") === "descending", lefts());
  one("button", heads[0]).click();
  check("names are sorted upwards", lefts() === "beaten,fast,small", lefts());
  check("text of pictures can be read", all("text", picture).every(text => text.getBoundingClientRect().height > 7), all("text", picture).map(text => text.getBoundingClientRect().height));
  check("the page is not wider than the window", document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollWidth);
