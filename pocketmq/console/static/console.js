// Behaviour of pages besides links and forms: buttons that wait for a typed name, and a refresh of the page's content.

const INTERVAL_MS = 10_000, KEPT = "refresh";

function waitForNames(root) {
  for (const input of root.querySelectorAll("input[data-confirm]")) {
    const button = input.form.querySelector("button");
    const update = () => { button.disabled = input.value !== input.dataset.confirm; };
    input.addEventListener("input", update);
    update();
  }
}

// A page is left alone while its user fills in a form, marks a text, or does not look at it.
function isInUse(main) {
  const marked = getSelection();
  return document.hidden || main.querySelector("details[open] form, .charts") !== null
    || (main.contains(document.activeElement) && document.activeElement !== main)
    || (marked !== null && !marked.isCollapsed);
}

async function refresh() {
  const main = document.querySelector("main");
  if (isInUse(main)) return;
  const answer = await fetch(location.href);
  if (!answer.ok || answer.redirected || isInUse(main)) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  main.replaceChildren(...page.querySelector("main").childNodes);
  waitForNames(main);
}

function offerRefresh(box) {
  if (document.querySelector(".charts") !== null) return;
  box.closest("label").hidden = false;
  box.checked = localStorage.getItem(KEPT) === "true";
  box.addEventListener("change", () => localStorage.setItem(KEPT, box.checked));
  setInterval(() => { if (box.checked) refresh().catch(() => {}); }, INTERVAL_MS);
}

waitForNames(document);
offerRefresh(document.querySelector("#refresh"));
