// The tables and limits that Python sends with the settings of the stage.

export const tables = { drafters: {}, rules: {}, tabs: {}, linked: [], max_trace_bytes: Infinity, has_live_copy: false };

/** Set the tables. Call once, before anything is shown. */
export function learnTables(settings) {
  for (const name of Object.keys(tables)) tables[name] = settings[name] ?? tables[name];
}
