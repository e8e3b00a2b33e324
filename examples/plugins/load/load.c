/* load is a plugin that says how busy a node is: its load over 1, 5 and 15 minutes as a share of its
 * processors. What it cannot read is an error, never a quiet node. */
#include "caponier.h"

CAPONIER_DESCRIBE {
  cap_buf b = {0};
  cap_put(&b,
    "{\"abi\":1,\"minor\":2,\"name\":\"load\",\"version\":\"1.0.0\",\"tools\":[{"
    "\"name\":\"node_load\",\"title\":\"Load of a node\","
    "\"description\":\"Say how busy a node is: its load over 1, 5 and 15 minutes in percent of its "
    "processors, where 100 is as much as they can do. It says nothing of memory or disks. "
    "Example: {\\\"node\\\":\\\"pve1\\\"}\","
    "\"input_schema\":{\"type\":\"object\",\"properties\":{\"node\":{\"type\":\"string\","
    "\"description\":\"Node, if not the default\",\"x-caponier-target\":\"node\"}},"
    "\"additionalProperties\":false},"
    "\"output_schema\":{\"type\":\"object\",\"properties\":{\"node\":{\"type\":\"string\"},"
    "\"processors\":{\"type\":\"integer\"},\"percent_1m\":{\"type\":\"integer\"},"
    "\"percent_5m\":{\"type\":\"integer\"},\"percent_15m\":{\"type\":\"integer\"},"
    "\"state\":{\"type\":\"string\",\"enum\":[\"calm\",\"busy\",\"overloaded\"]}},"
    "\"required\":[\"node\",\"processors\",\"percent_1m\",\"percent_5m\",\"percent_15m\","
    "\"state\"]},"
    "\"hints\":{\"read_only\":true,\"destructive\":false,\"idempotent\":true,\"open_world\":false},"
    "\"imports\":[\"ssh_exec\"],\"commands\":[\"cat\",\"nproc\"],\"budget_ms\":10000,"
    "\"runs\":\"cat /proc/loadavg, nproc\"}],\"resources\":[],\"prompts\":[]}");
  cap_output(b);
  return 0;
}

/* fail ends the call with an error of the tool. */
static int fail(cap_str code, cap_str message) {
  cap_buf b = {0};
  cap_put(&b, "{\"content\":[],\"error\":{\"code\":"), cap_quote(&b, code);
  cap_put(&b, ",\"message\":"), cap_quote(&b, message), cap_put(&b, "}}");
  cap_output(b);
  return CAP_CALL_ERROR;
}

/* run returns 1 with what a command printed, or 0 once the call has ended with an error. */
static int run(cap_str node, const char *argv, cap_str *out) {
  cap_buf ask = {0};
  cap_put(&ask, "{\"node\":"), cap_add(&ask, node), cap_put(&ask, ",\"argv\":");
  cap_put(&ask, argv), cap_put(&ask, "}");
  unsigned status = cap_ssh_exec(ask.p, ask.n);
  cap_str r = cap_response();
  if (status == CAP_REFUSED)
    return fail(cap_lit("refused"), cap_text(cap_get(cap_at(cap_get(r, "deny"), 0), "msg"))), 0;
  if (status == CAP_BAD_REQUEST)
    return fail(cap_lit("bad_request"), cap_text(cap_get(r, "message"))), 0;
  if (status != CAP_OK) /* a tool that only reads is never planned */
    return fail(cap_text(cap_get(r, "code")), cap_text(cap_get(r, "message"))), 0;
  if (!cap_is(cap_get(r, "exit"), "0"))
    return fail(cap_lit("failed"), cap_text(cap_get(r, "stderr"))), 0;
  *out = cap_text(cap_get(r, "stdout"));
  return 1;
}

/* number reads digits, and with places also so many of them behind a dot, as a whole number. It
 * moves text behind them, and returns -1 for anything else. */
static long long number(cap_str *text, unsigned places) {
  long long n = 0;
  unsigned i = 0, left = places;
  for (int dot = 0; i < text->n && i < 12; i++) {
    char c = text->p[i];
    if (c == '.' && places && !dot && i) { dot = 1; continue; }
    if (c < '0' || c > '9' || dot && !left) break;
    n = n * 10 + (c - '0'), left -= (unsigned)dot;
  }
  if (!i || places && left) return -1;
  text->p += i, text->n -= i;
  return n;
}

CAPONIER_CALL {
  cap_str input = cap_input(), node = cap_get(cap_get(input, "args"), "node"), text;
  if (!node.p) node = cap_node(input);
  static const char *const keys[] = {"percent_1m", "percent_5m", "percent_15m"};
  static const char *const states[] = {"calm", "busy", "overloaded"};
  const cap_str bad = cap_lit("bad_output");

  if (!run(node, "[\"nproc\"]", &text)) return CAP_CALL_ERROR;
  long long processors = number(&text, 0);
  if (processors < 1 || !cap_is(text, "\n") && text.n)
    return fail(bad, cap_lit("nproc printed no number of processors"));

  if (!run(node, "[\"cat\",\"/proc/loadavg\"]", &text)) return CAP_CALL_ERROR;
  cap_buf out = {0};
  cap_put(&out, "{\"content\":[],\"structured\":{\"node\":"), cap_add(&out, node);
  cap_put(&out, ",\"processors\":"), cap_number(&out, processors);
  int state = 0;
  for (int i = 0; i < 3; i++) {
    long long hundredths = number(&text, 2);
    if (hundredths < 0 || !text.n || *text.p != ' ')
      return fail(bad, cap_lit("/proc/loadavg does not begin with three loads"));
    text.p++, text.n--;
    long long percent = hundredths / processors;
    if (i == 1) state = percent >= 100 ? 2 : percent >= 70; /* over 5 minutes */
    cap_put(&out, ",\""), cap_put(&out, keys[i]), cap_put(&out, "\":");
    cap_number(&out, percent);
  }
  cap_put(&out, ",\"state\":"), cap_quote(&out, cap_lit(states[state])), cap_put(&out, "}}");
  cap_output(out);
  return CAP_CALL_OK;
}
