"use strict";
// What the scripts of a page share: sizes and times as everywhere in the reports, and elements.
const figures = (() => {
  const bytes = n => {
    if (n < 1024) return `${n} B`;
    const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let value = n / 1024, unit = 0;
    while (value >= 1023.95 && unit + 1 < units.length) { value /= 1024; unit++; }
    return `${value.toFixed(value < 9.995 ? 2 : 1)} ${units[unit]}`;
  };
  const two = n => String(n).padStart(2, "0");
  const time = us => {
    if (us < 999.95) return us === 0 ? "0" : `${us.toFixed(1)} us`;
    if (us < 999950) return `${(us / 1e3).toFixed(1)} ms`;
    if (us < 9995000) return `${(us / 1e6).toFixed(2)} s`;
    if (us < 59950000) return `${(us / 1e6).toFixed(1)} s`;
    const seconds = Math.round(us / 1e6), minutes = Math.round(us / 6e7), hours = Math.round(us / 3.6e9);
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
    if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
    return `${Math.floor(hours / 24)} d ${two(hours % 24)} h`;
  };

  const html = (name, className, ...children) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children);
    return made;
  };
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const round = n => Math.round(n * 10) / 10;
  return { bytes, two, time, html, clamp, round };
})();
