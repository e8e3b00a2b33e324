package test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs"
)

// chromium is a real browser, driven over its debugging pipe.
type chromium struct {
	t       *testing.T
	in      *os.File
	from    *os.File
	out     *bufio.Reader // of from
	session string
	id      int
	log     []string // what the browser reported
}

// newChromium fails in CI if there is no browser. Elsewhere it skips the test with a message.
func newChromium(t *testing.T) *chromium {
	t.Helper()
	path := needs.Program(t, "chromium", "chromium-browser", "google-chrome")
	theirIn, in, err := os.Pipe()
	must(t, err)
	out, theirOut, err := os.Pipe()
	must(t, err)
	// /dev/shm is small in containers; nothing but loopback is reached.
	cmd := exec.Command(
		path,
		"--headless",
		"--no-sandbox",
		"--disable-gpu",
		"--disable-dev-shm-usage",
		"--remote-debugging-pipe",
		"--no-first-run",
		"--disable-extensions",
		"--disable-background-networking",
		"--disable-component-update",
		"--disable-sync",
		"--no-proxy-server",
		"--hide-scrollbars",
		"--user-data-dir="+t.TempDir(),
		"about:blank",
	)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it starts many processes
	must(t, cmd.Start())
	theirIn.Close()
	theirOut.Close()
	t.Cleanup(func() {
		in.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		out.Close()
	})
	c := &chromium{t: t, in: in, from: out, out: bufio.NewReader(out)}
	var target struct{ TargetID string }
	c.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	c.do(
		"Target.attachToTarget",
		map[string]any{"targetId": target.TargetID, "flatten": true},
		&attached,
	)
	c.session = attached.SessionID
	c.do("Page.enable", nil, nil)
	c.do("Log.enable", nil, nil)
	return c
}

// do sends a command and waits for its answer. Of the events in between it keeps what the browser
// logs.
func (c *chromium) do(method string, params, result any) {
	c.t.Helper()
	c.id++
	msg := map[string]any{"id": c.id, "method": method}
	if params != nil {
		msg["params"] = params
	}
	if c.session != "" {
		msg["sessionId"] = c.session
	}
	data, err := json.Marshal(msg)
	must(c.t, err)
	_, err = c.in.Write(append(data, 0))
	must(c.t, err)
	must(c.t, c.from.SetReadDeadline(time.Now().Add(2*time.Minute)))
	for {
		line, err := c.out.ReadBytes(0)
		if err != nil {
			c.t.Fatalf("chromium, %s: %v", method, err)
		}
		var answer struct {
			ID     int
			Error  *struct{ Message string }
			Result json.RawMessage
			Method string
			Params struct{ Entry struct{ Text string } }
		}
		must(c.t, json.Unmarshal(bytes.TrimRight(line, "\x00"), &answer))
		if answer.Method == "Log.entryAdded" {
			c.log = append(c.log, answer.Params.Entry.Text)
		}
		if answer.ID != c.id {
			continue
		}
		if answer.Error != nil {
			c.t.Fatalf("chromium, %s: %s", method, answer.Error.Message)
		}
		if result != nil {
			must(c.t, json.Unmarshal(answer.Result, result))
		}
		return
	}
}

// eval runs an expression as the test's own, which a page's policy does not stop.
func (c *chromium) eval(js string) string {
	c.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	c.do(
		"Runtime.evaluate",
		map[string]any{"expression": "String(" + js + ")", "returnByValue": true},
		&r,
	)
	if r.ExceptionDetails != nil {
		return "exception: " + r.ExceptionDetails.Text
	}
	return fmt.Sprint(r.Result.Value)
}

// until waits until an expression has the wanted value.
func (c *chromium) until(js, want string) {
	c.t.Helper()
	got := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(
		50 * time.Millisecond) {
		if got = c.eval(js); strings.Contains(got, want) {
			return
		}
	}
	c.t.Fatalf(
		"%s is %q, want %q; the page says:\n%s",
		js,
		got,
		want,
		c.eval("document.body.innerText"),
	)
}

func (c *chromium) open(url, want string) {
	c.t.Helper()
	c.do("Page.navigate", map[string]any{"url": url}, nil)
	c.until("document.readyState + ' ' + document.body.innerText", want)
}

// click presses the mouse where the element is, as a person would: nothing that covers it is
// clicked through.
func (c *chromium) click(selector string) {
	c.t.Helper()
	var at struct{ X, Y float64 }
	must(
		c.t,
		json.Unmarshal(
			[]byte(
				c.eval(
					`(() => { const e = document.querySelector(`+fmt.Sprintf(
						"%q",
						selector,
					)+`); e.scrollIntoView({block: "center"}); const r = `+
						`e.getBoundingClientRect(); return JSON.stringify({x: r.x + r.width/2, `+
						`y: r.y + r.height/2}) })()`,
				),
			),
			&at,
		),
	)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		c.do(
			"Input.dispatchMouseEvent",
			map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1},
			nil,
		)
	}
}

// logged waits until the browser has logged a message with that text, and returns the message.
func (c *chromium) logged(text string) string {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(
		50 * time.Millisecond) {
		c.eval("1")
		for _, line := range c.log {
			if strings.Contains(line, text) {
				return line
			}
		}
	}
	return fmt.Sprintf("nothing with %q in %q", text, c.log)
}

func (c *chromium) size(width, height int, phone bool) {
	c.t.Helper()
	c.do(
		"Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone},
		nil,
	)
}

// picture is a PNG of the whole page.
func (c *chromium) picture() []byte {
	c.t.Helper()
	var shot struct{ Data string }
	c.do(
		"Page.captureScreenshot",
		map[string]any{"format": "png", "captureBeyondViewport": true},
		&shot,
	)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	must(c.t, err)
	return data
}
