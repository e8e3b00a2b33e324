package plugin

import (
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

func selectable() *Lock {
	l := &Lock{}
	for name, tools := range map[string][]string{"guests": {"list_guests", "stop_guest"},
		"jq": {"jq_query"}, "web": {"curl_execute", "curl-docs"}, "odd": {"web"}} {
		l.entries = append(l.entries, Entry{Plugin: terms.Plugin{Name: name}})
		for _, t := range tools {
			l.tools = append(l.tools, &terms.Tool{Name: t, Plugin: terms.Plugin{Name: name}})
		}
	}
	return l
}

func TestSelectionOnlyNarrows(t *testing.T) {
	l := selectable()
	all := []string{"curl-docs", "curl_execute", "jq_query", "list_guests", "stop_guest", "web"}
	for claim, c := range map[string]struct {
		s    Selection
		want []string
		err  string
	}{
		"nothing said offers all": {Selection{}, all, ""},
		"a toolset has its resources too": {Selection{Toolsets: []string{"web"}},
			[]string{"curl-docs", "curl_execute"}, ""},
		"a table may name toolsets and tools": {
			Selection{Enable: []string{"jq", "list_guests"}}, []string{"jq_query",
				"list_guests"}, ""},
		"disable wins over enable": {Selection{Enable: []string{"guests"},
			Disable: []string{"stop_guest"}}, []string{"list_guests"}, ""},
		"a flag brings back nothing that is not on": {Selection{Enable: []string{"jq"},
			Toolsets: []string{"guests", "jq"}}, []string{"jq_query"}, ""},
		"a flag brings back nothing that is off": {Selection{Disable: []string{"stop_guest"},
			Tools: []string{"stop_guest", "jq_query"}}, []string{"jq_query"}, ""},
		"tools come beside toolsets": {Selection{Toolsets: []string{"jq"},
			Tools: []string{"stop_guest"}}, []string{"jq_query", "stop_guest"}, ""},
		"excluding wins over selecting": {Selection{Toolsets: []string{"guests"},
			Tools: []string{"stop_guest"}, Exclude: []string{"stop_guest"}},
			[]string{"list_guests"}, ""},
		"a toolset can be excluded": {
			Selection{Exclude: []string{"guests", "odd"}}, []string{"curl-docs", "curl_execute",
				"jq_query"}, ""},
		"an unknown toolset lists those that exist": {Selection{Toolsets: []string{"guest"}}, nil,
			`--toolsets: there is no "guest"; what there is: guests, jq, odd, web`},
		"a tool is no toolset": {Selection{Toolsets: []string{"jq_query"}},
			nil, `--toolsets: there is no "jq_query"`},
		"a toolset is no tool": {Selection{Tools: []string{"guests"}}, nil,
			`--tools: there is no "guests"`},
		"an unknown excluded tool is no typing slip": {Selection{Exclude: []string{"stop_gest"}},
			nil, `--exclude-tools: there is no "stop_gest"`},
		"an unknown name in the table": {Selection{Enable: []string{"*"}}, nil,
			`[tools] enable: there is no "*"`},
		"an unknown name to disable": {Selection{Disable: []string{""}}, nil,
			`[tools] disable: there is no ""`},
		"a name with two meanings enables neither": {Selection{Enable: []string{"web"}}, nil,
			`"web" is a toolset and a tool of the toolset odd`},
		"a name with two meanings disables both": {Selection{Disable: []string{"web"}},
			[]string{"jq_query", "list_guests", "stop_guest"}, ""},
		"an empty table does not mean everything": {Selection{Enable: []string{}}, nil,
			"tools.enable: is empty"},
		"nothing left is an error": {Selection{Enable: []string{"jq"},
			Toolsets: []string{"guests"}}, nil, "nothing is left to offer"},
	} {
		t.Run(claim, func(t *testing.T) {
			slices.SortFunc(l.entries,
				func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
			why, err := c.s.HiddenReason(l)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, tool := range l.tools {
				if why(tool) == "" {
					got = append(got, tool.Name)
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("offers %v, want %v", got, c.want)
			}
		})
	}
}
