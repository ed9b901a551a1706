// Runs in the page once it has loaded; the checks of the page and `end.js` follow. Its value is a line for each check.
(async () => {
  const lines = [];
  const check = (name, holds, detail = "") => lines.push(`${holds ? "ok" : "FAILED"} ${name} ${holds ? "" : detail}`.trim());
  // A picture is drawn in the frame after the one in which a size was observed, whenever the browser comes to it.
  const frame = () => new Promise(requestAnimationFrame);
  const settle = async () => {
    await new Promise(done => setTimeout(done, 60));
    for (let frames = 0; frames < 3; frames++) await frame();
  };
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const one = (selector, from = document) => from.querySelector(selector);
