"use strict";
// What the page shows, in the address behind the token: a copied line or a bookmark shows it again.
const view = (() => {
  const [, ...parts] = location.hash.slice(1).split("&");
  const kept = new URLSearchParams(parts.join("&"));
  // A line that is pasted into the same page.
  addEventListener("hashchange", () => location.reload());
  return {
    get: name => kept.get(name),
    set: (name, value) => {
      if (value === "" || value === null) kept.delete(name);
      else kept.set(name, value);
      const text = kept.toString();
      history.replaceState(null, "", `#${runs.token}${text ? `&${text}` : ""}`);
    },
  };
})();
