package approval

import (
	"path/filepath"
	"testing"
	"time"
)

// A ticket opens as what it was sealed as, for a name that may approve, and nothing else opens at
// all.
func FuzzTicket(f *testing.F) {
	a, err := New(
		Options{Approvers: []string{"ann", "bob"}, KeyFile: filepath.Join(f.TempDir(), "key")}, nil)
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := a.seal(linkTicket, ticket{"ann", (time.Now().Add(time.Hour)).UnixMilli(), "n"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed, "ann", linkTicket)
	f.Add(sealed+".", "eve", sessionTicket)
	f.Add("", "", "")
	f.Add("eyJuIjoiYW5uIiwiZSI6OTk5OTk5OTk5OTk5OX0.", "bob", "link.session")
	f.Fuzz(func(t *testing.T, given, name, kind string) {
		if got, err := a.open(linkTicket, given); (err == nil) != (given == sealed) ||
			err == nil && got.Name != "ann" {
			t.Fatalf("%q opens as %+v, %v", given, got, err)
		}
		mine, err := a.seal(kind, ticket{name, (time.Now().Add(time.Minute)).UnixMilli(), "n"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.open(kind, mine)
		if may := name == "ann" || name == "bob"; (err == nil) != may || may && got.Name != name {
			t.Fatalf("%q sealed as %q opens as %+v, %v", name, kind, got, err)
		}
		for _, other := range []string{linkTicket, sessionTicket} {
			if _, err := a.open(other, mine); err == nil && other != kind {
				t.Fatalf("a ticket of kind %q opens as %q", kind, other)
			}
		}
	})
}
