// The page's module: asks the server what to call, and tells it what came of it.
const report = (result) => fetch("/result", { method: "POST", body: JSON.stringify(result) });

try {
  const calls = await import("./cases.mjs");
  const results = [];
  for (const { name, args } of await (await fetch("/calls")).json()) results.push(await calls[name](...args));
  await report({ isolated: crossOriginIsolated, results });
} catch (error) {
  await report({ error: String(error?.stack ?? error) });
}
