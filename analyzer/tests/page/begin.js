// Runs inside of the page after its own scripts; the checks of the page and `end.js` follow. What they find goes to the element
// "result", a line for each check.
(async () => {
  const lines = [];
  const check = (name, holds, detail = "") => lines.push(`${holds ? "ok" : "FAILED"} ${name} ${holds ? "" : detail}`.trim());
  const settle = () => new Promise(done => setTimeout(done, 60));
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const one = (selector, from = document) => from.querySelector(selector);
