// The module of the page: asks the server which functions to call, and sends their results back.
const report = (result) => fetch("/result", { method: "POST", body: JSON.stringify(result) });

try {
  const calls = await import("./cases.mjs");
  const results = [];
  for (const { name, args } of await (await fetch("/calls")).json()) results.push(await calls[name](...args));
  await report({ isolated: crossOriginIsolated, results });
} catch (error) {
  await report({ error: String(error?.stack ?? error) });
}
