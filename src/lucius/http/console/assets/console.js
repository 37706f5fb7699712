// Keys, copying, and looking again when the server says so. Everything works without it, only less quickly.
"use strict";
(() => {
  const root = document.body.dataset.root || "";
  const places = { n: "/", j: "/jobs", f: "/failures", s: "/services", p: "/protocols" };
  let going = false;

  const typing = (target) => target.closest("input, select, textarea, [contenteditable]") !== null;

  const rows = () =>
    [...document.querySelectorAll("[data-row]")].map((row) => row.querySelector("a, summary")).filter(Boolean);

  const move = (by) => {
    const all = rows();
    if (all.length === 0) return;
    const row = document.activeElement.closest("[data-row]");
    const at = row ? all.indexOf(row.querySelector("a, summary")) : -1;
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
    all[next].focus();
    all[next].scrollIntoView({ block: "nearest" });
  };

  const opens = (id) => {
    const dialog = document.getElementById(id);
    if (dialog && !dialog.open) dialog.showModal();
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    const signedIn = document.getElementById("search");
    if (going && places[event.key] !== undefined && signedIn) {
      location.assign(root + places[event.key]);
    } else if (event.key === "/" && signedIn) {
      event.preventDefault();
      signedIn.focus();
    } else if (event.key === "?") {
      opens("keys");
    } else if (event.key === "j" || event.key === "k") {
      event.preventDefault();
      move(event.key === "j" ? 1 : -1);
    }
    going = event.key === "g";
  });

  // Browsers have a clipboard for pages over https and on this machine; elsewhere a selection is copied.
  const copied = async (text, button) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const field = document.createElement("textarea");
      field.value = text;
      field.className = "skip";
      button.after(field);
      field.select();
      const done = document.execCommand("copy");
      field.remove();
      button.focus();
      return done;
    }
  };

  document.addEventListener("click", async (event) => {
    const opener = event.target.closest("[data-opens]");
    if (opener) opens(opener.dataset.opens);
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    button.textContent = (await copied(button.dataset.copy, button)) ? "copied" : "not allowed";
    button.classList.add("done");
    setTimeout(() => {
      button.textContent = "copy";
      button.classList.remove("done");
    }, 1500);
  });

  // A place in a page that a link names may lie in something that is closed.
  const unfold = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();

  // -- live ------------------------------------------------------------------------------------
  const address = document.body.dataset.live;
  if (!address) return;
  const standing = document.getElementById("stream");
  let source = null;

  const look = () => document.body.dispatchEvent(new CustomEvent("look"));

  const close = (text) => {
    if (source) source.close();
    source = null;
    standing.textContent = text;
  };

  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.addEventListener("open", () => (standing.textContent = "live"));
    source.addEventListener("look", look);
    source.addEventListener("end", () => {
      look();
      close("");
    });
    source.addEventListener("error", () => {
      if (!source || source.readyState !== EventSource.CLOSED) {
        standing.textContent = "connecting";
        return;
      }
      close("not live: load the page again");
      look(); // Who is signed out by now is sent to sign in.
    });
  };

  // Nobody looks at a page that is hidden, so it costs the server nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close("");
    } else {
      open();
      look();
    }
  });

  // What somebody is filling in is not taken from under their hands.
  const inUse = (part) =>
    part.id === "live" && (part.querySelector("details[open]") || part.querySelector("form :focus"));
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (inUse(event.detail.elt)) event.preventDefault();
  });
  // It may have been opened while the answer was on its way.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (inUse(event.detail.target)) event.detail.shouldSwap = false;
  });
  document.body.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.id === "live") event.detail.path = location.pathname + location.search;
  });
  open();
})();
