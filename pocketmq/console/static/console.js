// What pages do besides links and forms: buttons that wait for a typed name, and a refresh of the page's content.

for (const input of document.querySelectorAll("input[data-confirm]")) {
  const button = input.form.querySelector("button");
  const update = () => { button.disabled = input.value !== input.dataset.confirm; };
  input.addEventListener("input", update);
  update();
}
