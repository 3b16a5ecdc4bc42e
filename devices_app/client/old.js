document.getElementById("starting").textContent =
  "This browser is too old for this page: it needs Safari 17.5, Chrome 123 or Firefox 125, " +
  "or a newer one.";
