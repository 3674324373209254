// The docs page: reads /openapi.json and shows every operation with a form that sends real requests. All text is
// inserted as text nodes, so nothing in a server's answer can become markup.
"use strict";

const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function nameOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  const kinds = schema.anyOf || schema.oneOf;
  if (kinds && !schema.properties) return kinds.map(nameOf).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return schema.items ? `[${nameOf(schema.items)}]` : "[any]";
  if (schema.properties && schema.properties.results) return `{results: ${nameOf(schema.properties.results)}}`;
  return schema.type || "any";
}

function noteOf(schema) {
  const notes = [schema.description, ...(schema.anyOf || []).map((kind) => kind.description)];
  return notes.filter(Boolean).join(" ");
}

function fieldsTable(schema) {
  const required = new Set(schema.required || []);
  const rows = Object.entries(schema.properties || {}).map(([name, field]) =>
    make("tr", {},
      make("td", {}, make("code", {}, name), required.has(name) ? " *" : ""),
      make("td", {}, make("code", {}, nameOf(field))),
      make("td", {}, noteOf(field))));
  return make("table", {}, make("tbody", {}, ...rows));
}

function shape(name, schema) {
  return make("details", { id: `shape-${name}` },
    make("summary", {}, make("span", { class: "path" }, name), make("span", { class: "text" }, schema.description || "")),
    make("div", { class: "inside" }, fieldsTable(schema)));
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function parameterFields(operation) {
  return (operation.parameters || [])
    .filter((parameter) => parameter.in !== "header")
    .map((parameter) => {
      const input = make("input", {
        name: parameter.name,
        placeholder: parameter.schema.default ?? nameOf(parameter.schema),
        spellcheck: "false",
        value: parameter.in === "path" ? parameter.example || "" : "",
      });
      return { parameter, input, label: make("label", {}, `${parameter.name} (${parameter.in})`, input) };
    });
}

function targetOf(path, fields) {
  const query = new URLSearchParams();
  for (const { parameter, input } of fields) {
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value !== "") query.set(parameter.name, input.value);
  }
  return query.size ? `${path}?${query}` : path;
}

function headersOf(withBody) {
  const headers = {};
  if (withBody) headers["Content-Type"] = "application/json";
  if (byId("namespace").value) headers["Dueline-Namespace"] = byId("namespace").value;
  if (byId("token").value) headers["Authorization"] = `Bearer ${byId("token").value}`;
  return headers;
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function asCurl(method, target, headers, body) {
  const parts = ["curl", "-sS", "-X", method, quoted(location.origin + target)];
  for (const [name, value] of Object.entries(headers)) {
    parts.push("-H", quoted(`${name}: ${name === "Authorization" ? "Bearer …" : value}`));
  }
  if (body) parts.push("-d", quoted(body));
  return parts.join(" ");
}

async function send(method, path, fields, bodyField, result, button) {
  const target = targetOf(path, fields);
  const body = bodyField ? bodyField.value.trim() : "";
  const headers = headersOf(body !== "");
  const began = performance.now();
  button.disabled = true;
  try {
    const answer = await fetch(target, { method, headers, body: body || undefined });
    const text = await answer.text();
    const status = make("span", { class: `status ${answer.ok ? "good" : "bad"}` }, `${answer.status} ${answer.statusText}`);
    const spent = ` in ${Math.round(performance.now() - began)} ms`;
    result.replaceChildren(
      make("div", {}, status, spent), make("pre", {}, pretty(text)), make("pre", {}, asCurl(method, target, headers, body)));
  } catch (error) {
    result.replaceChildren(make("div", { class: "status bad" }, String(error)));
  } finally {
    button.disabled = false;
  }
}

function bodyEditor(operation) {
  const content = operation.requestBody && operation.requestBody.content["application/json"];
  if (!content) return { editor: null, parts: [] };
  const editor = make("textarea", { spellcheck: "false", "aria-label": "Request body" });
  editor.value = JSON.stringify(content.example ?? {}, null, 2);
  return { editor, parts: [make("h3", {}, `Body: ${nameOf(content.schema)}`), editor] };
}

function responsesTable(operation) {
  const rows = Object.entries(operation.responses).map(([status, response]) => {
    const schema = Object.values(response.content || {})[0]?.schema;
    return make("tr", {},
      make("td", {}, make("code", {}, status)), make("td", {}, response.description),
      make("td", {}, make("code", {}, nameOf(schema))));
  });
  return make("table", {}, make("tbody", {}, ...rows));
}

function card(method, path, operation) {
  const fields = parameterFields(operation);
  const { editor, parts } = bodyEditor(operation);
  const result = make("div", { class: "inside", "aria-live": "polite" });
  const button = make("button", { type: "submit" }, "Try it");
  const form = make("form", { class: "inside" },
    make("div", { class: "fields" }, ...fields.map((field) => field.label)),
    ...parts, button, result, make("h3", {}, "Answers"), responsesTable(operation));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(method.toUpperCase(), path, fields, editor, result, button);
  });
  const details = make("details", { id: operation.operationId },
    make("summary", {},
      make("span", { class: `method ${method}` }, method.toUpperCase()),
      make("span", { class: "path" }, path),
      make("span", { class: "text" }, operation.summary || "")),
    form);
  details.dataset.words = `${method} ${path} ${operation.summary} ${operation.operationId}`.toLowerCase();
  return details;
}

function show(description) {
  byId("version").textContent = description.info.version;
  byId("about").textContent = description.info.description;
  const groups = new Map(description.tags.map((tag) => [tag.name, []]));
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      groups.get(operation.tags[0]).push(card(method, path, operation));
    }
  }
  for (const [name, cards] of groups) {
    byId("operations").append(make("section", {}, make("h2", {}, name), ...cards));
  }
  for (const [name, schema] of Object.entries(description.components.schemas)) {
    byId("shapes").append(shape(name, schema));
  }
}

function find(words) {
  for (const section of document.querySelectorAll("#operations section")) {
    let any = false;
    for (const details of section.querySelectorAll("details")) {
      details.hidden = !details.dataset.words.includes(words);
      any ||= !details.hidden;
    }
    section.querySelector("h2").hidden = !any;
  }
}

byId("settings").addEventListener("submit", (event) => event.preventDefault());
byId("find").addEventListener("input", (event) => find(event.target.value.trim().toLowerCase()));
fetch("/openapi.json")
  .then((answer) => answer.json())
  .then((description) => {
    show(description);
    const opened = location.hash && byId(location.hash.slice(1));
    if (opened) opened.open = true;
  })
  .catch((error) => { byId("about").textContent = `The description could not be read: ${error}`; });
