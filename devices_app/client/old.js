// Say so in a browser that is too old; app.js does not start there.
if (!("popover" in document.body && CSS.supports("color", "light-dark(red, red)"))) {
  document.documentElement.classList.add("old");
  /** @type {HTMLElement} */ (document.getElementById("starting")).textContent =
    "This browser is too old for this page: it needs Safari 17.5, Chrome 123 or Firefox 125, " +
    "or a newer one.";
}
