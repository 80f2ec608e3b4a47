// Polling, keys, and light or dark. Everything is readable without this file.
"use strict";
(() => {
  const EVERY = 3000;
  const root = document.documentElement;
  const store = {
    get(name) { try { return localStorage.getItem(name); } catch { return null; } },
    set(name, value) { try { value ? localStorage.setItem(name, value) : localStorage.removeItem(name); } catch { /* private window */ } },
  };
  const theme = (value) => { if (value) root.dataset.theme = value; else delete root.dataset.theme; };
  theme(store.get("theme"));  // before anything is drawn

  // Makes `now` look like `next` and keeps elements that stay: focus, selection, scrolling and open details survive.
  function morph(now, next) {
    if (now.nodeType !== next.nodeType || now.nodeName !== next.nodeName || (now.id || "") !== (next.id || "")) {
      now.replaceWith(document.importNode(next, true));
      return;
    }
    if (now.nodeType !== Node.ELEMENT_NODE) {
      if (now.nodeValue !== next.nodeValue) now.nodeValue = next.nodeValue;
      return;
    }
    for (const { name } of [...now.attributes]) if (name !== "open" && !next.hasAttribute(name)) now.removeAttribute(name);
    for (const { name, value } of next.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    if (now.hasAttribute("data-chart")) return;
    const old = [...now.childNodes], fresh = [...next.childNodes];
    fresh.forEach((child, place) => {
      if (place < old.length) morph(old[place], child);
      else now.append(document.importNode(child, true));
    });
    old.slice(fresh.length).forEach((child) => child.remove());
  }

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("live-switch");
    if (!button) return;
    const [dot, label] = button.children;
    const live = document.body.dataset.live === "yes";
    let paused = store.get("paused") === "yes", lost = false, asking = false;

    function say() {
      button.hidden = !live;
      label.textContent = paused ? "paused" : lost ? "not reachable" : "live";
      dot.className = "dot" + (paused ? "" : lost ? " bad" : " good");
    }

    async function ask() {
      if (!live || paused || asking || document.hidden) return;
      asking = true;
      try {
        const answer = await fetch(location.href, { headers: { "X-Part": "1" }, cache: "no-store" });
        if (answer.status === 401) { location.reload(); return; }
        const next = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const id of ["job-line", "live"]) {
          const now = document.getElementById(id), then = next.getElementById(id);
          if (now && then) morph(now, then);
        }
        lost = false;
        document.dispatchEvent(new Event("emberstate:fresh"));
      } catch { lost = true; } finally { asking = false; say(); }
    }

    button.addEventListener("click", () => { paused = !paused; store.set("paused", paused ? "yes" : ""); say(); ask(); });
    document.getElementById("theme-switch").addEventListener("click", () => {
      const order = ["", "light", "dark"];
      const value = order[(order.indexOf(root.dataset.theme || "") + 1) % order.length];
      store.set("theme", value);
      theme(value);
      document.dispatchEvent(new Event("emberstate:theme"));
    });
    const help = document.getElementById("help");
    document.getElementById("help-switch").addEventListener("click", () => help.showModal());
    document.addEventListener("visibilitychange", ask);
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      if (event.key === "?") help.showModal();
      else if (event.key === "p") button.click();
      else if (event.key === "t") document.getElementById("theme-switch").click();
      else if (event.key === "0") location.assign("/");
      else if (event.key === "/") {
        event.preventDefault();
        const field = document.getElementById("key"), link = document.querySelector('nav.pages a[href$="/key"]');
        if (field) field.select(); else if (link) link.click();
      } else if (/^[1-9]$/.test(event.key)) {
        const link = document.querySelector(`[data-key="${event.key}"]`);
        if (link) link.click();
      }
    });
    say();
    setInterval(ask, EVERY);
  });
})();
