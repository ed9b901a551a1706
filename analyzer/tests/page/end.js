  // Theme and names.
  const background = () => getComputedStyle(document.body).backgroundColor;
  const before = background();
  one("#theme").click();
  check("the theme changes", background() !== before, before);
  one("#theme").click();
  check("and changes back", background() === before, background());
  const unnamed = all("button, input, select, [tabindex='0'], table").filter(element =>
    !(element.getAttribute("aria-label") || element.textContent.trim() || element.labels?.[0]?.textContent.trim()));
  check("everything that can be used has a name", unnamed.length === 0, unnamed.map(element => element.outerHTML.slice(0, 60)));
  check("the end", true);
  return lines.join("\n");
})()
