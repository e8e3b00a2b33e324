package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// recorded is a list as a real node wrote its rows: pools, guests, storages, nodes, networks.
func recorded(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/resources.json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestARecordedListIsRead(t *testing.T) {
	l, err := Read(recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	want := "{[{101 lxc pve1 running web01 prod started [prod web] false} " +
		"{103 lxc pve2 unknown    [] false} {200 qemu pve1 stopped vm-app prod  [] true} " +
		"{1040 lxc pve2 stopped other lab  [scratch] false}] [{pve1 online} {pve2 online}]}"
	if got := fmt.Sprint(l); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if g, is := l.Guest("103"); !is || g.Known() {
		t.Errorf("a guest whose node sends nothing: %+v, %v", g, is)
	}
	if g, is := l.Guest("104"); is {
		t.Errorf("104 is listed as %+v", g)
	}
}

const good = `{"id":"lxc/101","type":"lxc","vmid":101,"node":"pve1","status":"running"}`

func TestAContradictoryListIsRefused(t *testing.T) {
	row := func(old, new string) string { return "[" + strings.Replace(good, old, new, 1) + "]" }
	for claim, c := range map[string]struct{ list, why string }{
		"nothing":            {``, "not a JSON list"},
		"null":               {`null`, "not a JSON list"},
		"an object":          {`{}`, "not a JSON list"},
		"an empty list":      {`[]`, "says nothing"},
		"storages alone":     {`[{"id":"storage/a/b","type":"storage"}]`, "says nothing"},
		"it is cut off":      {"[" + good, "cut off"},
		"cut off in a row":   {"[" + good[:len(good)-1], "row 1"},
		"more follows":       {"[" + good + "] []", "more follows"},
		"a row that is none": {`[null]`, "row 1: it is not an object"},
		"no type":            {row(`"type":"lxc",`, ``), "its type is missing"},
		"a guest as a storage": {`[{"id":"lxc/101","type":"storage","node":"a","status":"ok"},` +
			good + "]", `lxc/101 is listed as "storage"`},
		"an odd type": {row(`"type":"lxc"`, `"type":"openvz"`),
			`guest 101 is listed as "openvz"`},
		"no number":           {row(`"vmid":101,`, ``), "not the number of a guest"},
		"a null number":       {row(`101,`, `null,`), "not the number of a guest"},
		"a text for a number": {row(`101,`, `"101",`), `the text "101" is not the number`},
		"a rounded number":    {row(`101,`, `101.0,`), "101.0 is not the number"},
		"an exponent":         {row(`101,`, `1.01e2,`), "1.01e2 is not the number"},
		"a negative number":   {row(`101,`, `-101,`), "-101 is not the number"},
		"a large number":      {row(`101,`, `1000000000,`), "1000000000 is not the number"},
		"an id of another": {row(`"lxc/101"`, `"lxc/102"`),
			`guest 101 of type lxc has the id the text "lxc/102"`},
		"an id of another kind": {row(`"lxc/101"`, `"qemu/101"`), "has the id"},
		"no id":                 {row(`"id":"lxc/101",`, ``), "has the id missing"},
		"no node":               {row(`"node":"pve1",`, ``), "guest 101: its node is missing"},
		"a path": {row(`pve1`, `../../access`),
			`its node is the text "../../access"`},
		"an option":           {row(`pve1`, `-H`), "its node is"},
		"a line after a node": {row(`pve1`, `pve1\n`), "its node is"},
		"no status":           {row(`,"status":"running"`, ``), "its status is missing"},
		"a null name": {row(`"status"`, `"name":null,"status"`),
			"its name is missing, or null"},
		"tags in a list":     {row(`"status"`, `"tags":["prod"],"status"`), "its tags is"},
		"half a template":    {row(`"status"`, `"template":0.5,"status"`), "neither 0 nor 1"},
		"a true template":    {row(`"status"`, `"template":true,"status"`), "neither 0 nor 1"},
		"a key twice":        {row(`"status"`, `"node":"pve1","status"`), `it has "node" twice`},
		"a key in two cases": {row(`"status"`, `"Node":"pve2","status"`), `it has "Node" twice`},
		"a guest twice":      {"[" + good + "," + good + "]", "guest 101 twice"},
		"a guest in two places": {"[" + good + "," + strings.Replace(good, "pve1", "pve2", 1) + "]",
			"guest 101 twice"},
		"a node twice": {`[{"id":"node/a","type":"node","node":"a","status":"online"},
			{"id":"node/a","type":"node","node":"a","status":"offline"}]`, "node a twice"},
		"a node of another id": {`[{"id":"node/b","type":"node","node":"a","status":"online"}]`,
			"node a has the id"},
		"deep nesting": {row(`"status"`, `"x":`+
			strings.Repeat("[", 50)+strings.Repeat("]", 50)+`,"status"`), "nests deeper"},
		"deep nesting, cut off": {row(`"status"`, `"x":`+strings.Repeat("[", 1_000_000)),
			"nests deeper"},
		"bytes that are no text": {row(`pve1`, "pve\xff"), "UTF-8"},
		"too many rows": {"[" + strings.Repeat(`{"type":"pool"},`, maxRows+1) + good + "]",
			"more than"},
	} {
		l, err := Read([]byte(c.list))
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %+v, %v; want %q", claim, l, err, c.why)
		}
	}
	if _, err := Read([]byte(row(`"status"`,
		`"x":[{"y":[1]}],"cpu":1.5e-05,"status"`))); err != nil {
		t.Errorf("what nobody reads: %v", err)
	}
}

// Who may write a guest's name, tags or pool must not decide about other guests, and a node that
// leaves the cluster leaves its guests in the list.
func TestOneOddGuestIsUnknownAlone(t *testing.T) {
	const other = `{"id":"lxc/102","type":"lxc","vmid":102,"node":"pve1","status":"running",` +
		`"tags":"web"},{"id":"node/pve1","type":"node","node":"pve1","status":"online"}]`
	for claim, row := range map[string]string{
		"a long tag":         `"tags":"` + strings.Repeat("a", 129) + `","status"`,
		"many tags":          `"tags":"` + strings.Repeat("ab;", 683) + `","status"`,
		"a tag that is odd":  `"tags":"a;b=c","status"`,
		"a tag with a line":  `"tags":"a\nb","status"`,
		"an odd pool":        `"pool":"a b","status"`,
		"half a pool":        `"pool":"a/","status"`,
		"a name with a line": `"name":"a\nb","status"`,
		"a name that turns":  `"name":"a\u202eb","status"`,
		"a node that left":   `"status"`,
	} {
		one := strings.Replace(good, `"status"`, row, 1)
		if claim == "a node that left" {
			one = strings.Replace(one, "pve1", "pve9", 1)
		}
		l, err := Read([]byte("[" + one + "," + other))
		g, is := l.Guest("101")
		if err != nil || !is || g.Known() {
			t.Errorf("%s: %+v, %v", claim, g, err)
		}
		if g, is := l.Guest("102"); !is || !g.Known() || fmt.Sprint(g.Tags) != "[web]" {
			t.Errorf("%s: the other guest is %+v", claim, g)
		}
	}
}

// A list with one change is believed only where the change leaves it a list that can be true: then
// every guest that it does not show has gone with its whole row.
func TestAChangedListIsNeverBelievedWhereItContradictsItself(t *testing.T) {
	var all []map[string]json.RawMessage
	if err := json.Unmarshal(recorded(t), &all); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(17, 17))
	values := []string{`null`, `""`, `"x"`, `0`, `1`, `-1`, `101`, `101.0`, `"101"`, `103`, `200`,
		`true`, `[]`, `{}`,
		`"pve1"`, `"pve2"`, `"pve9"`, `"lxc"`, `"qemu"`, `"node"`, `"storage"`, `"lxc/101"`,
		`"qemu/200"`, `"node/pve1"`,
		`"../x"`, `"a b"`, `"running"`, `"unknown"`}
	believed := 0
	for range 8_000 {
		rows := make([]map[string]json.RawMessage, len(all))
		for i, row := range all {
			rows[i] = maps.Clone(row)
		}
		i := r.IntN(len(rows))
		keys := slices.Sorted(maps.Keys(rows[i]))
		key, did := keys[r.IntN(len(keys))], ""
		switch r.IntN(3) {
		case 0:
			did = "without " + key
			delete(rows[i], key)
		case 1:
			v := values[r.IntN(len(values))]
			did = key + " is " + v
			rows[i][key] = json.RawMessage(v)
		case 2:
			did = "again with another node"
			again := maps.Clone(rows[i])
			again["node"] = json.RawMessage(`"pve2"`)
			rows = append(rows, again)
		}
		text, err := json.Marshal(rows)
		if err != nil {
			t.Fatal(err)
		}
		l, err := Read(text)
		if err != nil {
			continue
		}
		believed++
		check(t, l, rows, fmt.Sprintf("row %d %s", i+1, did))
	}
	if believed == 0 {
		t.Error("no change was believed: the test checks nothing")
	}
}

// check reads the rows in another way, with encoding/json, and compares.
func check(t *testing.T, l List, rows []map[string]json.RawMessage, did string) {
	t.Helper()
	text := func(row map[string]json.RawMessage, key string) (s string) {
		_ = json.Unmarshal(row[key], &s)
		return s
	}
	number := 0
	for _, row := range rows {
		id, kind := string(row["vmid"]), text(row, "type")
		if kind == "lxc" || kind == "qemu" {
			number++
			g, is := l.Guest(id)
			if is && !g.Known() && text(row, "status") != "unknown" {
				if whole(rows, row) {
					t.Errorf("%s: row %v is unknown", did, row)
				}
				continue
			}
			if !is || g.Kind != kind || g.Node != text(row, "node") ||
				g.Status != text(row, "status") ||
				text(row, "id") != kind+"/"+id || g.Pool != text(row, "pool") ||
				strings.Join(g.Tags, " ") != strings.ReplaceAll(text(row, "tags"), ";", " ") ||
				g.Name != text(row, "name") {
				t.Errorf("%s: row %v is believed as %+v", did, row, g)
			}
		} else if row["vmid"] != nil {
			t.Errorf("%s: guest %s is no guest in a list that is believed", did, id)
		}
	}
	if number != len(l.Guests) {
		t.Errorf("%s: %d guests of %d rows", did, len(l.Guests), number)
	}
}

// whole reports whether a guest's pool and tags are plain words, and its node is listed.
func whole(rows []map[string]json.RawMessage, row map[string]json.RawMessage) bool {
	plain := func(key, letters string) bool {
		return row[key] == nil ||
			strings.Trim(string(row[key]), letters+`"`) == "" && string(row[key]) != `""`
	}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return plain("pool", letters) && plain("tags", letters+";") &&
		slices.ContainsFunc(rows, func(o map[string]json.RawMessage) bool {
			return string(o["type"]) == `"node"` && string(o["node"]) == string(row["node"])
		})
}

func TestANodeWithoutQuorumIsRefused(t *testing.T) {
	const node = `{"type":"node","id":"node/pve1","name":"pve1","online":1}`
	for claim, c := range map[string]struct{ status, why string }{
		"a cluster with quorum": {`[{"type":"cluster","id":"cluster","quorate":1},` + node + `]`,
			""},
		"a node of its own":     {`[` + node + `]`, ""},
		"no quorum":             {`[{"type":"cluster","quorate":0},` + node + `]`, "no quorum"},
		"nothing of a quorum":   {`[{"type":"cluster"},` + node + `]`, "no quorum"},
		"a quorum that is text": {`[{"type":"cluster","quorate":"1"},` + node + `]`, "no quorum"},
		"two clusters": {
			`[{"type":"cluster","quorate":1},{"type":"cluster","quorate":1},` + node + `]`,
			"2 clusters"},
		"a cluster without nodes": {`[{"type":"cluster","quorate":1}]`, "0 nodes"},
		"nothing":                 {`[]`, "0 nodes"},
		"null":                    {`null`, "not a JSON list"},
		"something else":          {`[{"type":"lxc"},` + node + `]`, "its type is"},
	} {
		if err := Quorate([]byte(c.status), false); (err == nil) != (c.why == "") ||
			err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v; want %q", claim, err, c.why)
		}
	}
}

func TestAMemberMustReportItsCluster(t *testing.T) {
	const node = `{"type":"node","id":"node/pve1","name":"pve1","online":1}`
	if err := Quorate([]byte(`[`+node+`]`), true); err == nil ||
		!strings.Contains(err.Error(), "shows no cluster") {
		t.Error(err)
	}
	if err := Quorate([]byte(`[{"type":"cluster","quorate":1},`+node+`]`), true); err != nil {
		t.Error(err)
	}
}

func TestAnyCutOfAListIsRefused(t *testing.T) {
	data := []byte(strings.TrimSpace(string(recorded(t))))
	for n := range data {
		if l, err := Read(data[:n]); err == nil {
			t.Fatalf("the first %d bytes: %+v", n, l)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(recorded(f))
	f.Add([]byte("[" + good + "]"))
	f.Add([]byte(`[{"id":"node/a","type":"node","node":"a","status":"online"}]`))
	f.Add([]byte(`[{"id":"node/a","type":"node","node":"a","status":"online","x":2E9999}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Read(data)
		if err != nil {
			if len(l.Guests)+len(l.Nodes) > 0 {
				t.Errorf("%+v with %v", l, err)
			}
			return
		}
		if len(l.Guests)+len(l.Nodes) == 0 {
			t.Error("an empty list is believed")
		}
		seen := map[string]bool{}
		for _, g := range l.Guests {
			if seen[g.VMID] || !vmids.MatchString(g.VMID) || !nodes.MatchString(g.Node) ||
				g.Status == "" ||
				g.Kind != "lxc" && g.Kind != "qemu" {
				t.Errorf("%+v", g)
			}
			seen[g.VMID] = true
		}
		var plain []map[string]any
		other := json.NewDecoder(bytes.NewReader(data))
		other.UseNumber() // a field that is not read may hold a number beyond a float64
		if other.Decode(&plain) != nil || other.More() {
			t.Error("another reader reads no list here")
		}
	})
}
