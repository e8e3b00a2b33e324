package export

import (
	"cmp"
	"fmt"
	"strings"
)

// labels are what OPA's decision logs name their sender by.
func labels(o Options) map[string]string {
	return map[string]string{"app": "caponier", "id": o.name(), "version": o.Version}
}

// open returns the sink that the options describe.
func (s SinkOptions) open(o Options) (sink, error) {
	path := strings.TrimPrefix(s.URL, "unix://")
	switch s.Kind {
	case "opa", "otlp", "otlp-traces":
		w, err := newWeb(s)
		if err != nil {
			return nil, err
		}
		if s.Kind == "opa" {
			return opa{w, labels(o)}, nil
		}
		logs := otlp{w, o.name(), o.Version}
		if s.Kind == "otlp-traces" {
			return traces{logs}, nil
		}
		return logs, nil
	case "jsonl":
		return lines{s.File}, nil
	case "journald":
		return journald{cmp.Or(path, journalSocket), s.limit()}, nil
	case "syslog":
		tls, err := s.tls()
		if err != nil {
			return nil, err
		}
		network, address, _ := strings.Cut(s.URL, "://")
		return syslog{network, address, tls, o.name(), s.limit()}, nil
	}
	return nil, fmt.Errorf("%q is no kind of sink", s.Kind)
}
