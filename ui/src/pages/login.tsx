import { useState } from "preact/hooks";
import { ApiError, call, type Settings } from "../api";
import { t } from "../i18n";
import icon from "../icon.svg";
import { Field, Trouble } from "../parts";

/** The token goes to the server once and comes back as a cookie that no script can read. */
export function Login({ settings, done }: { settings: Settings; done: () => void }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await call("POST", "/ui/login", { body: { token: token.trim() } });
      setError(undefined);
      done();
    } catch (reason) {
      setError(reason instanceof ApiError ? reason : new ApiError(0, "page", String(reason)));
    }
    setBusy(false);
  };
  return (
    <main class="login">
      <form class="panel" onSubmit={(event) => void submit(event)}>
        <div class="row"><span class="brand"><img src={icon} alt="" />Dueline</span>{settings.environment && <span class={`badge ${settings.colour}`}>{settings.environment}</span>}</div>
        <div><h1>{t("Log in")}</h1><p class="dim">{t("This server needs a token with the right read.")}</p></div>
        <Field label={t("Token")}><input type="password" autocomplete="current-password" required autoFocus value={token} placeholder="dl_…" onInput={(event) => setToken(event.currentTarget.value)} /></Field>
        {error && <Trouble error={error} />}
        <button class="primary" disabled={busy || !token.trim()}>{busy ? t("Working…") : t("Log in")}</button>
        <p class="small dim">{t("To make a token:")}<code class="block">dueline token create NAME --right read</code></p>
      </form>
    </main>
  );
}
