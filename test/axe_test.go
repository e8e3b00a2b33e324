package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caponier-mcp/caponier/test/needs"
)

// axe returns the source of axe-core (WCAG 2.2 A and AA, and good practice), which npm has checked
// against test/web/package-lock.json.
func axe(t *testing.T) string {
	t.Helper()
	needs.Program(t, "npm")
	source, err := loadAxe()
	if err != nil {
		needs.Skip(t, "npm cannot install axe-core: "+err.Error())
	}
	return source
}

var loadAxe = sync.OnceValues(func() (string, error) {
	dir := "../build/web"
	file := filepath.Join(dir, "node_modules/axe-core/axe.min.js")
	if source, err := os.ReadFile(file); err == nil {
		return string(source), nil
	}
	if err := os.CopyFS(dir, os.DirFS("web")); err != nil && !os.IsExist(err) {
		return "", err
	}
	out, err := exec.Command("npm", "ci", "--prefix", dir, "--ignore-scripts", "--no-audit",
		"--no-fund").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	source, err := os.ReadFile(file)
	return string(source), err
})

// accessible holds that axe-core finds nothing wrong with the page, in light and in dark, and that
// the Tab key reaches each control once, in the order of the page.
func (c *chromium) accessible(name string) {
	c.t.Helper()
	source := axe(c.t)
	for _, scheme := range []string{"light", "dark"} {
		c.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{
			{"name": "prefers-color-scheme", "value": scheme}}}, nil)
		c.do("Runtime.evaluate", map[string]any{"expression": source + `;
			window.found = "";
			axe.run(document).then(r => window.found = JSON.stringify(r.violations.map(v => ({
				id: v.id, help: v.help, nodes: v.nodes.map(n => n.html + " " + n.failureSummary)
			}))), e => window.found = "failed " + e)`}, nil)
		c.until("window.found != ''", "true")
		var found []struct {
			ID, Help string
			Nodes    []string
		}
		must(c.t, json.Unmarshal([]byte(c.eval("window.found")), &found))
		for _, v := range found {
			c.t.Errorf("%s, %s: %s: %s\n%s", name, scheme, v.ID, v.Help,
				strings.Join(v.Nodes, "\n"))
		}
	}
	c.do("Emulation.setEmulatedMedia", map[string]any{"features": []any{}}, nil)
	const controls = "a[href], button, input:not([type=hidden]), select, summary"
	total := c.eval("[...document.querySelectorAll('" + controls + "')].length")
	c.eval("document.activeElement.blur(), window.order = []")
	for range 200 {
		for _, kind := range []string{"keyDown", "keyUp"} {
			c.do("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": "Tab",
				"code": "Tab", "windowsVirtualKeyCode": 9}, nil)
		}
		if c.eval("(() => { const e = document.activeElement, at = "+
			"[...document.querySelectorAll('"+controls+"')].indexOf(e); "+
			"if (at < 0 || window.order.includes(at)) return 'end'; window.order.push(at); "+
			"return getComputedStyle(e).outlineStyle })()") == "end" {
			break
		}
	}
	if got := c.eval("window.order.every((n, i) => n == i) + ' ' + window.order.length"); got !=
		"true "+total {
		c.t.Errorf("%s: the Tab key reaches %s of %s controls", name, got, total)
	}
}

// installable holds that the browser offers to install the page as an application.
func (c *chromium) installable() {
	c.t.Helper()
	var got struct {
		InstallabilityErrors []struct{ ErrorID string }
	}
	c.do("Page.getInstallabilityErrors", nil, &got)
	for _, e := range got.InstallabilityErrors {
		c.t.Errorf("the page cannot be installed: %s", e.ErrorID)
	}
	var app struct {
		URL, Data string
		Errors    []struct{ Message string }
	}
	c.do("Page.getAppManifest", nil, &app)
	if !strings.HasSuffix(app.URL, "/approvals/app.webmanifest") || len(app.Errors) > 0 ||
		!strings.Contains(app.Data, "icon.svg") {
		c.t.Errorf("its manifest: %+v", app)
	}
}
