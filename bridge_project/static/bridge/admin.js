// Let unfold's pages run under a policy without `unsafe-eval` and without inline styles.
//
// Alpine compiles the expressions of its attributes with the constructor of async functions, which
// the policy forbids. Here they are interpreted instead: the part of JavaScript that unfold's
// templates use, and no name of the browser but those in GLOBALS.
"use strict";
(() => {
  const CALLED =
    "theme searchForm searchDropdown searchCommand getCurrentTab sortRecords".split(" ");
  const GLOBALS = {
    localStorage,
    window: { location },
    ...Object.fromEntries(CALLED.map((name) => [name, (...given) => window[name](...given)])),
  };
  const WORDS = { true: true, false: false, null: null, undefined };
  const HIDDEN = ["constructor", "__proto__", "prototype"]; // the ways from a value to its code
  // what would set a style attribute, which the policy forbids too, as properties
  const REWRITTEN = {
    "'width: ' + changeListWidth + 'px'": "{width: changeListWidth + 'px'}",
  };
  const KINDS = [
    /(?<name>[A-Za-z_$][\w$]*)/,
    /(?<number>\d+)/,
    /(?<text>'[^'\\]*'|"[^"\\]*")/,
    /(?<sign>[=!]==?|=>|&&|\|\||[-+!?:.,;(){}[\]=<>])/,
  ];
  const TOKEN = new RegExp(`\\s*(?:${KINDS.map(({ source }) => source).join("|")})\\s*`, "y");
  const OPERATORS = [
    { "||": (left, right) => left() || right() },
    { "&&": (left, right) => left() && right() },
    {
      "==": (left, right) => left() == right(),
      "!=": (left, right) => left() != right(),
      "===": (left, right) => left() === right(),
      "!==": (left, right) => left() !== right(),
    },
    { "<": (left, right) => left() < right(), ">": (left, right) => left() > right() },
    { "+": (left, right) => left() + right(), "-": (left, right) => left() - right() },
  ];

  function tokens(source) {
    const found = [];
    TOKEN.lastIndex = 0;
    while (TOKEN.lastIndex < source.length) {
      const match = TOKEN.exec(source);
      if (match === null) throw new SyntaxError(`not understood: ${source}`);
      found.push(match.groups);
    }
    return found;
  }

  // Read an expression; what is returned takes a scope and gives its value.
  function parse(source) {
    const rest = tokens(source);
    const sees = (sign) => rest[0]?.sign === sign || (rest[0]?.name === sign && sign === "if");
    const takes = (sign) => sees(sign) && Boolean(rest.shift());
    const must = (sign) => {
      if (!takes(sign)) throw new SyntaxError(`${sign} is missing: ${source}`);
    };

    function statements(end) {
      const all = [];
      while (rest.length > 0 && !sees(end)) {
        if (!takes(";")) all.push(statement());
      }
      return (scope) => all.reduce((_, one) => one(scope), undefined);
    }

    function statement() {
      if (!takes("if")) return expression();
      must("(");
      const condition = expression();
      must(")");
      const then = branch();
      if (rest[0]?.name !== "else") return (scope) => (condition(scope) ? then(scope) : undefined);
      rest.shift();
      const otherwise = branch();
      return (scope) => (condition(scope) ? then(scope) : otherwise(scope));
    }

    function branch() {
      if (!takes("{")) return statement();
      const inside = statements("}");
      must("}");
      return inside;
    }

    function expression() {
      if (rest[0]?.name && rest[1]?.sign === "=>") {
        const { name } = rest.shift();
        must("=>");
        const body = expression();
        return (scope) => (value) => body(Alpine.mergeProxies([{ [name]: value }, scope]));
      }
      const target = binary(0);
      if (takes("?")) {
        const then = expression();
        must(":");
        const otherwise = expression();
        return (scope) => (target(scope) ? then(scope) : otherwise(scope));
      }
      if (!takes("=")) return target;
      const value = expression();
      return (scope) => target.assign(scope, value(scope));
    }

    function binary(level) {
      if (level === OPERATORS.length) return unary();
      let left = binary(level + 1);
      while (OPERATORS[level][rest[0]?.sign]) {
        const [apply, first] = [OPERATORS[level][rest.shift().sign], left];
        const second = binary(level + 1);
        left = (scope) => apply(() => first(scope), () => second(scope));
      }
      return left;
    }

    function unary() {
      if (!takes("!")) return postfix();
      const value = unary();
      return (scope) => !value(scope);
    }

    function postfix() {
      let value = primary();
      for (;;) {
        if (takes(".")) {
          const { name } = rest.shift();
          value = member(value, () => name);
        } else if (takes("[")) {
          value = member(value, expression());
          must("]");
        } else if (takes("(")) {
          const [called, given] = [value, list(")")];
          value = (scope) => {
            const owner = called.owner?.(scope);
            return called(scope).apply(owner ?? scope, given.map((one) => one(scope)));
          };
        } else return value;
      }
    }

    function member(owner, key) {
      const checked = (scope) => {
        const name = key(scope);
        if (HIDDEN.includes(name)) throw new TypeError(`${name} is not to be had`);
        return name;
      };
      const value = (scope) => owner(scope)[checked(scope)];
      value.owner = owner;
      value.assign = (scope, given) => (owner(scope)[checked(scope)] = given);
      return value;
    }

    function list(end) {
      const all = [];
      while (!takes(end)) {
        all.push(expression());
        if (!sees(end)) must(",");
      }
      return all;
    }

    function primary() {
      if (takes("(")) {
        const inside = expression();
        must(")");
        return inside;
      }
      if (takes("[")) {
        const items = list("]");
        return (scope) => items.map((item) => item(scope));
      }
      if (takes("{")) return object();
      const { name, number, text, sign } = rest.shift() ?? {};
      if (number) return () => Number(number);
      if (text) return () => text.slice(1, -1);
      if (sign || !name) throw new SyntaxError(`not understood: ${source}`);
      if (Object.hasOwn(WORDS, name)) return () => WORDS[name];
      const value = (scope) => {
        if (name in scope) return scope[name];
        if (!Object.hasOwn(GLOBALS, name)) throw new ReferenceError(`${name}: ${source}`);
        return GLOBALS[name];
      };
      value.assign = (scope, given) => (scope[name] = given);
      return value;
    }

    function object() {
      const fields = [];
      while (!takes("}")) {
        const { name, text } = rest.shift();
        must(":");
        fields.push([name ?? text.slice(1, -1), expression()]);
        if (!sees("}")) must(",");
      }
      return (scope) => Object.fromEntries(fields.map(([name, value]) => [name, value(scope)]));
    }

    return statements("");
  }

  const parsed = new Map();

  function evaluator(element, given) {
    return (receive = () => {}, { scope = {}, params = [] } = {}) => {
      const whole = Alpine.mergeProxies([scope, ...Alpine.closestDataStack(element)]);
      try {
        let value = given;
        if (typeof given === "string") {
          const source = REWRITTEN[given] ?? given;
          if (!parsed.has(source)) parsed.set(source, parse(source));
          value = parsed.get(source)(whole);
        }
        receive(typeof value === "function" ? value.apply(whole, params) : value);
      } catch (error) {
        reportError(error); // one attribute that fails must not keep the page from being shown
      }
    };
  }

  document.addEventListener("alpine:init", () => Alpine.setEvaluator(evaluator));

  // What unfold's pages leave to the eye and the mouse, for keyboards and screen readers.
  document.addEventListener("DOMContentLoaded", () => {
    (document.getElementById("main") ?? document.getElementById("page")).role = "main";
    document.getElementById("nav-sidebar-apps")?.setAttribute("data-simplebar-aria-label", "Menu");
    for (const icon of document.querySelectorAll("a .material-symbols-outlined")) {
      icon.ariaHidden = "true";
    }
    for (const badge of document.querySelectorAll("#nav-sidebar a > span")) {
      badge.hidden = badge.textContent.trim() === ""; // of a count that is nothing
    }
    for (const sign of document.querySelectorAll("span[x-on\\:click*=sidebar]")) {
      sign.role = "button";
      sign.tabIndex = 0;
      sign.ariaLabel = "Show or hide the menu";
      sign.addEventListener("keydown", ({ key }) => {
        if (key === "Enter" || key === " ") sign.click();
      });
    }
  });

  htmx.config.allowEval = false;
  htmx.config.includeIndicatorStyles = false; // a style element
})();
