package remote

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestUnitsAreNamedByTheirNode(t *testing.T) {
	answer, exit, asked := "", 0, 0
	s := sshtest.New(t, sshtest.Options{Exec: func(
		ctx context.Context, command string, _ io.Reader, out, _ io.Writer,
	) int {
		if !strings.HasPrefix(command, "'systemctl' 'show' '--property=Id,Names' '--' '") {
			return local(ctx, command, out)
		}
		asked++
		fmt.Fprint(out, answer)
		return exit
	}})
	r := newRemote(t, s)
	look := func(units ...string) ([]string, error) {
		q := terms.Question{Kind: terms.KindOperation, Phase: terms.PhaseLookup, Units: units,
			Op:  abi.SSHExec{OnNode: on("n1"), Argv: []string{"systemctl", "restart", "sshd"}},
			Cmd: &terms.Command{}, Call: &terms.Call{Principal: terms.Principal{ID: "p"}}}
		f, err := r.Lookup(t.Context(), q)
		return f.Units, err
	}
	answer = "Id=ssh.service\nNames=sshd.service ssh.service\n"
	for range 3 {
		got, err := look("sshd")
		if err != nil || !slices.Equal(got, []string{"ssh.service", "sshd.service"}) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times for one unit", asked)
	}
	for i, bad := range []string{"", "Id=\nNames=\n", "Id=a.service\n",
		"Id=a.service\nNames=b.service\n", "Id=a.service\nNames=a.service\nx\n",
		"Id=a.service\nId=b.service\nNames=a.service b.service\n",
		"Id=a.service\nNames=a.service b;c\n", "Id=a.service\nNames=a.service\nFoo=1\n"} {
		answer = bad
		if got, err := look(fmt.Sprint("u", i)); err == nil {
			t.Errorf("%q was accepted: %v", bad, got)
		}
	}
	before := asked
	for _, name := range []string{"", "-x", "*", "a b", "a'b", "a\nb", "a;b",
		strings.Repeat("a", 300)} {
		_, err := look(name)
		refused(t, err, "bad_input", terms.Failed)
	}
	if asked != before {
		t.Error("the node was asked for what is no name of a unit")
	}
}

func TestNamesOfUnitsAreKeptForFiveMinutes(t *testing.T) {
	var u units
	now := time.Now()
	u.put("sshd", unitNames{[]string{"ssh.service"}, now.Add(unitTime)})
	if _, known := u.get("sshd", now.Add(unitTime-time.Second)); !known {
		t.Error("an answer of less than five minutes ago is not used")
	}
	if _, known := u.get("sshd", now.Add(unitTime)); known {
		t.Error("an answer of five minutes ago is used")
	}
}
