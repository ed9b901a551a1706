"use strict";
// The runs: columns of equal length, how a figure is shown, and filters.
const runs = (() => {
  const { bytes, time } = figures;
  /** Names that are shorter to type than those of the columns. */
  const SHORT = { time: "run_time", sm: "sm_activity", gpu: "gpu_model", memory: "peak", exit: "exit_code" };
  /** What may stand before a name: of an option of a command line, a sweep's parameter, and a figure that programs logged. */
  const STARTS = ["", "param.", "--", "-", "metric."];
  const FACTORS = {
    bytes: { b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40, kb: 1e3, mb: 1e6, gb: 1e9 },
    seconds: { us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400 },
    share: { "%": 0.01 },
    joules: { j: 1, kj: 1e3 },
  };
  const numeric = new Intl.Collator(undefined, { numeric: true });
  /** Order of two values of a column: numbers in texts by their size. */
  const order = column => column.isText ? (a, b) => numeric.compare(a, b) : (a, b) => a - b;
  const token = location.hash.slice(1).split("&")[0];

  /** What the server answers; an error says in a sentence why there is nothing. */
  const ask = async path => {
    let answer;
    try {
      answer = await fetch(path, { headers: { Authorization: `Bearer ${token}` } });
    } catch {
      throw new Error("radrm explore does not answer: it may have ended.");
    }
    if (!answer.ok) throw new Error((await answer.text()).trim());
    return answer.json();
  };

  /** Columns by key, with what can be told from their values. */
  const read = answer => {
    const columns = answer.columns.map((column, at) => ({ ...column, values: answer.values[at] }));
    for (const column of columns) {
      const known = column.values.filter(value => value !== null);
      column.known = known.length;
      // What a command line or a sweep says is text; where all of it is numbers it is ordered as such.
      if (column.unit === "text" && column.is_parameter && known.length && known.every(value => value !== "" && Number.isFinite(Number(value)))) {
        column.unit = "number";
        column.values = column.values.map(value => value === null ? null : Number(value));
      }
      column.isText = column.unit === "text";
    }
    const byKey = new Map(columns.map(column => [column.key, column]));
    const texts = columns.filter(column => column.isText || column.is_parameter);
    const count = columns[0].values.length;
    let found = null;
    /** All text of a run, in lower case. */
    const words = at => {
      found ??= Array.from({ length: count }, (_, row) => texts.map(column => column.values[row] ?? "").join("\n").toLowerCase());
      return found[at];
    };
    const number = byKey.get("run").values, rows = new Map(number.map((id, at) => [id, at]));
    return { ...answer, columns, byKey, words, count, number, rows };
  };

  const shown = (column, value) => {
    if (value === null || value === undefined) return "n/a";
    switch (column.unit) {
      case "bytes": return bytes(value);
      case "seconds": return time(value * 1e6);
      case "share": return `${(value * 100).toFixed(1)} %`;
      case "when": return new Date(value).toISOString().slice(0, 16).replace("T", " ");
      case "rate": return `${+value.toPrecision(4)} /s`;
      case "joules": return value < 10000 ? `${value.toFixed(1)} J` : `${(value / 1000).toFixed(1)} kJ`;
      case "number": return String(column.is_parameter ? value : +value.toPrecision(6));
      case "watt": return `${value.toFixed(0)} W`;
      case "count": return Math.abs(value) < 1e15 ? value.toLocaleString("en") : String(value);
      default: return String(value);
    }
  };
  /** A cell: a peak that is an upper bound says so. */
  const cell = (data, column, at) => {
    const bound = column.key === "peak" && data.byKey.get("peak_exact")?.values[at] === 0 ? "≤ " : "";
    return bound + shown(column, column.values[at]);
  };

  const amount = (column, text) => {
    const found = text.trim().toLowerCase().match(/^(-?[\d.]+(?:e[+-]?\d+)?)\s*([a-z%]*)$/);
    if (!found) return null;
    const factor = found[2] === "" ? 1 : FACTORS[column.unit]?.[found[2]];
    const value = Number(found[1]) * factor;
    return Number.isFinite(value) ? value : null;
  };
  const COMPARE = {
    "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
    "=": (a, b) => a === b, "!=": (a, b) => a !== b,
  };

  /** Columns that a name in a filter may mean. */
  const named = (data, name) => {
    const keys = new Set([SHORT[name] ?? name, ...STARTS.map(start => start + name)]);
    return [...keys].map(key => data.byKey.get(key)).filter(Boolean);
  };
  /** Letters that differ between two words (Levenshtein). */
  const distance = (a, b) => {
    let row = Array.from({ length: b.length + 1 }, (_, at) => at);
    for (let i = 1; i <= a.length; i++) {
      const next = [i];
      for (let j = 1; j <= b.length; j++) next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] !== b[j - 1])));
      row = next;
    }
    return row[b.length];
  };
  /** A sentence on a name that no column has. */
  const unknown = (data, name) => {
    const names = [...Object.keys(SHORT), ...[...data.byKey.keys()].map(key => key.replace(/^(param\.|metric\.|-+)/, ""))];
    const near = names.map(known => [distance(known, name), known]).sort((a, b) => a[0] - b[0])[0];
    const isNear = near[0] <= (name.length < 4 ? 1 : 2);
    return `${name} is no figure or parameter of these runs${isNear ? `: did you mean ${near[1]}?` : ""}`;
  };
  /** A test of one column, or null if the wanted value is none of its kind. */
  const comparison = (column, sign, wanted) => {
    const compare = COMPARE[sign], values = column.values;
    if (column.isText) {
      const same = sign === "=" || sign === "!=" ? (a, b) => a.includes(b) === (sign === "=") : compare;
      return at => same((values[at] ?? "").toLowerCase(), wanted);
    }
    const value = column.unit === "when" ? Date.parse(wanted) : amount(column, wanted);
    if (value === null || Number.isNaN(value)) return null;
    return at => values[at] === null ? sign === "!=" : compare(values[at], value);
  };

  /** What a filter leaves: rows, and a sentence if a part of it cannot be understood. */
  const filter = (data, text) => {
    const tests = [];
    let problem = "";
    for (const word of text.match(/(?:"[^"]*"|[^\s"])+/g) ?? []) {
      const plain = word.replaceAll('"', "").toLowerCase();
      const found = plain.match(/^([^<>=!]+)(<=|>=|!=|=|<|>)(.+)$/);
      const has = at => data.words(at).includes(plain), columns = found ? named(data, found[1]) : [];
      if (!columns.length) {
        // It may be a part of a command.
        if (found && !data.number.some((_, at) => has(at))) problem = unknown(data, found[1]);
        else tests.push(has);
        continue;
      }
      const [, name, sign, wanted] = found;
      const each = columns.map(column => ({ column, test: comparison(column, sign, wanted) })).filter(one => one.test);
      if (!each.length) { problem = `${name}: ${wanted} is not an amount`; continue; }
      // Runs have it from different places: the dataset, a sweep, or the command line.
      tests.push(at => (each.find(one => one.column.values[at] !== null) ?? each[0]).test(at));
    }
    const rows = [];
    for (let at = 0; at < data.count; at++) if (tests.every(test => test(at))) rows.push(at);
    return { rows, problem };
  };

  /** Rows by a column; those without a value come last in either order. */
  const sorted = (column, rows, down) => {
    const way = down ? -1 : 1, values = column.values, compare = order(column);
    return rows.slice().sort((a, b) => {
      const [x, y] = [values[a], values[b]];
      if (x === null || y === null) return (x === null) - (y === null) || a - b;
      return way * compare(x, y) || a - b;
    });
  };

  return { token, ask, read, shown, cell, filter, order, sorted };
})();
