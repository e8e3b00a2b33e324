package egress

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestMoneyIsReservedBeforeARequestAndSettledAfterIt(t *testing.T) {
	w := lab(t, Options{USDMicrosPerDay: 1_000_000})
	var mu sync.Mutex // guards the following
	status, answer, reached := 200, "", 0
	origin := w.serve("llm.example", func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		reached++
		if answer == "abort" {
			panic(http.ErrAbortHandler)
		}
		rw.WriteHeader(status)
		io.WriteString(rw, answer)
	})
	plain := w.serve("plain.example", func(http.ResponseWriter, *http.Request) {})
	w.opts.Prices = []Price{
		{Origin: origin, Model: "m", Input: 3_000_000, Output: 15_000_000},
		{Origin: origin, Model: "cheap", Input: 1, Output: 1},
	}
	var err error
	if w.e, err = New(w.opts); err != nil {
		t.Fatal(err)
	}
	const body = `{"model":"m","max_tokens":100}` // 30 bytes, so 30*3 + 100*15 = 1590
	for name, tt := range map[string]struct {
		url, method, body string
		reserve           int64
		status            int
		answer            string
		reserved, settled string
		code              string
		outcome           terms.Outcome
		noMoney           bool
	}{
		"an answer of OpenAI": {body: body,
			answer: `{"usage":{"prompt_tokens":10,"completion_tokens":20}}`, reserved: "[1590]",
			settled: "[330]"},
		"an answer of Anthropic with a cache": {body: body,
			answer: `{"usage":{"input_tokens":5,"output_tokens":20,` +
				`"cache_read_input_tokens":3,"cache_creation_input_tokens":2}}`,
			reserved: "[1590]", settled: "[330]"},
		"an answer that counts more than asked": {body: body,
			answer:   `{"usage":{"prompt_tokens":1000000,"completion_tokens":0}}`,
			reserved: "[1590]", settled: "[3000000]"},
		"an answer without a count": {body: body, answer: `{}`, reserved: "[1590]",
			settled: "[1590]"},
		"an answer with a count below zero": {body: body,
			answer: `{"usage":{"prompt_tokens":-5,"completion_tokens":-5}}`, reserved: "[1590]",
			settled: "[1590]"},
		"an error of the server": {body: body, status: 500, reserved: "[1590]",
			settled: "[0]"},
		"a plugin that reserves more": {body: body, reserve: 5000, answer: `{}`,
			reserved: "[5000]", settled: "[5000]"},
		"a plugin that reserves less": {body: body, reserve: 1, answer: `{}`,
			reserved: "[1590]", settled: "[1590]"},
		"an answer that is lost stays spent": {body: body, answer: "abort", reserved: "[1590]",
			settled: "[]", code: "connection", outcome: terms.Unknown},
		"a budget that is used up": {body: body, noMoney: true, reserved: "[]",
			settled: "[]", code: "cost"},
		"reading costs nothing": {method: "GET", reserved: "[]", settled: "[]"},
		"a host without prices": {url: plain, body: "x", reserved: "[]",
			settled: "[]"},
		"a host without prices, reserved": {url: plain, body: "x", reserve: 9,
			reserved: "[9]", settled: "[9]"},
		"a model that is not listed": {body: `{"model":"dear","max_tokens":1}`,
			code: "model", reserved: "[]", settled: "[]"},
		"no model": {body: `{"max_tokens":1}`, code: "model",
			reserved: "[]", settled: "[]"},
		"a model that is there twice": {body: `{"model":"cheap","max_tokens":1,"model":"dear"}`,
			code: "cost", reserved: "[]", settled: "[]"},
		"a model in two spellings": {body: `{"model":"cheap","max_tokens":1,"Model":"dear"}`,
			code: "cost", reserved: "[]", settled: "[]"},
		"no limit of the answer": {body: `{"model":"m"}`, code: "cost",
			reserved: "[]", settled: "[]"},
		"a stream": {body: `{"model":"m","max_tokens":1,"stream":true}`, code: "cost",
			reserved: "[]", settled: "[]"},
		"a hundred answers": {body: `{"model":"m","max_tokens":1,"n":100}`,
			code: "cost", reserved: "[]", settled: "[]"},
		"three answers": {body: `{"model":"m","n":3,"max_tokens":100}`,
			answer: `{}`, reserved: "[4608]", settled: "[4608]"},
		"no body": {code: "cost", reserved: "[]", settled: "[]"},
		"a body that is no JSON": {body: "model=m", code: "cost", reserved: "[]",
			settled: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			mu.Lock()
			w.reserved, w.settled, w.noMoney, status, answer, reached = nil, nil, tt.noMoney, max(
				tt.status, 200), tt.answer, 0
			mu.Unlock()
			w.counts = map[string]int64{}
			op := abi.HTTPRequest{Method: "POST", URL: origin + "/v1",
				Data: abi.Data{Text: tt.body}, ReserveUSDMicros: tt.reserve}
			if tt.url != "" {
				op.URL = tt.url + "/"
			}
			if tt.method != "" {
				op.Method = tt.method
			}
			_, err := w.ask(op)
			mu.Lock()
			defer mu.Unlock()
			if tt.code != "" {
				if tt.outcome == "" {
					tt.outcome = terms.Failed
				}
				failedWith(t, err, tt.code, "", tt.outcome)
				if reached > 0 && tt.outcome == terms.Failed {
					t.Error("the server was reached")
				}
			} else if err != nil {
				t.Error(err)
			}
			if fmt.Sprint(w.reserved) != tt.reserved || fmt.Sprint(w.settled) != tt.settled {
				t.Errorf("reserved %v and settled %v, want %s and %s", w.reserved, w.settled,
					tt.reserved, tt.settled)
			}
		})
	}
	w.e.opts.USDMicrosPerDay = 0
	_, err = w.ask(abi.HTTPRequest{Method: "POST", URL: origin + "/", Data: abi.Data{Text: body}})
	failedWith(t, err, "cost", "no budget", terms.Failed)
}

func TestAnUnreachableServerCostsNothing(t *testing.T) {
	w := lab(t, Options{USDMicrosPerDay: 1_000_000})
	w.names["a.example"], w.listed = []string{"127.0.0.1"}, []string{"a.example"}
	_, err := w.ask(
		abi.HTTPRequest{Method: "POST", URL: "http://a.example:1/", ReserveUSDMicros: 50})
	failedWith(t, err, "connection", "", terms.Failed)
	if fmt.Sprint(w.reserved, w.settled) != "[50] [0]" {
		t.Errorf("reserved %v and settled %v", w.reserved, w.settled)
	}
}
