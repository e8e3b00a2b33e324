package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reading matches what a parser of bytes from elsewhere is made of.
var reading = regexp.MustCompile(
	`(json|yaml|toml)\.(Unmarshal|NewDecoder)\(|abi\.Decode(Into|Limited)?\(|` +
		`ssh\.Unmarshal\(|binary\.(Big|Little)Endian\.Uint(16|32|64)\(`)

// readers are the packages that read bytes of others: the fuzz targets that hold them to an oracle,
// as package.Target, or, after "no: ", why there is none.
var readers = map[string][]string{
	"client/connect": {
		"no: what it cannot read it passes on as it stands (TestWhatTheHostSaysIsPassedOn)"},
	"client/oauth":    {"no: its own file; what providers say is read by the MCP SDK"},
	"client/settings": {"no: files of the user, read before one key is changed"},
	"host/approval": {"host/approval.FuzzForms",
		"host/approval.FuzzWebhookSignature"},
	"host/audit": {"host/audit.FuzzEntry", "host/audit.FuzzDecode",
		"host/audit.FuzzTree"},
	"host/cmd/caponier":   {"no: the output of a call, which front/mcp has checked"},
	"host/console":        {"host/console.FuzzAddress"},
	"host/config":         {"no: the operator's file, of which every key has a test"},
	"host/doctor":         {"host/doctor.FuzzClusterStatus"},
	"host/distribution":   {"sdk/abi.FuzzDecode"},
	"host/store/postgres": {"host/identity.FuzzTokenFile"},
	"host/keyless":        {"sdk/abi.FuzzDecode"},
	"host/signature":      {"host/signature.FuzzBundle", "sdk/abi.FuzzDecode"},
	"host/egress": {"host/egress.FuzzParseURL", "host/egress.FuzzHeaders",
		"sdk/abi.FuzzDecode"},
	"host/freeze": {
		"no: the host's own files; one that cannot be read freezes everything"},
	"host/front/mcp": {"host/front/mcp.FuzzEnvelope"},
	"host/gate":      {"sdk/abi.FuzzDecode", "host/plugin.FuzzValidate"},
	"host/identity": {"host/identity.FuzzJWT", "host/identity.FuzzBearer",
		"host/identity.FuzzTokenFile"},
	"host/offline": {"host/offline.FuzzParse"},
	"host/plan":    {"no: plans and inputs that the host itself wrote"},
	"host/plugin": {"host/plugin.FuzzLock", "host/plugin.FuzzDescribe",
		"host/plugin.FuzzTemplate"},
	"host/policy/input":       {"host/policy.FuzzParse"},
	"host/policy/load":        {"host/policy/load/strict.FuzzData"},
	"host/policy/load/strict": {"host/policy/load/strict.FuzzData"},
	"host/policy/replay":      {"host/policy.FuzzParse"},
	"host/policy/suggest": {"host/policy.FuzzParse", "host/policy/suggest.FuzzText",
		"host/policy/load/strict.FuzzData"},
	"host/policy/repo": {"host/policy/repo.FuzzManifest"},
	"host/remote/internal/conn": {
		"no: exit codes, by the lying server (host/remote/liar_test.go)"},
	"host/remote/internal/files": {"host/remote/internal/files.FuzzAnswers",
		"host/remote/internal/files.FuzzReferee"},
	"host/result":  {"host/result.FuzzOutput"},
	"host/sandbox": {"host/sandbox.FuzzImports", "host/sandbox/meter.FuzzRewrite"},
	"host/shadow":  {"no: files that the host itself wrote; a report decides nothing"},
	"host/store":   {"no: rows that the host itself wrote"},
	"host/survey": {
		"no: by generated answers that cannot be (host/survey/survey_test.go)"},
	"host/undo": {
		"no: by generated answers that are not whole (host/undo/look_test.go)"},
	"plugins/internal/jq": {"plugins/internal/jq.FuzzStreaming",
		"plugins/internal/jq.FuzzShortPaths"},
	"plugins/internal/pve": {"plugins/internal/pve.FuzzDecode",
		"plugins/internal/pve.FuzzInt"},
	"plugins/llm":  {"no: in the sandbox, of what the host has bounded"},
	"sdk":          {"no: in the sandbox, of what the host wrote"},
	"sdk/abi":      {"sdk/abi.FuzzDecode"},
	"host/cluster": {"host/cluster.FuzzRead"},
	"host/inventory": {
		"no: what the host's own tool returned, which host/cluster has read"},
	"host/setup":  {"no: the record that init wrote, of the user's own"},
	"host/export": {"no: the cursor that the host itself wrote"},
	"host/remote/internal/command": {
		"no: exit codes, by the lying server (host/remote/liar_test.go)"},
}

// named are the parsers that stand between an attacker and the host. Each has a target with an
// oracle, and a committed corpus that every run of the tests goes through.
var named = map[string]string{
	"the envelope":             "host/front/mcp.FuzzEnvelope",
	"arguments":                "sdk/abi.FuzzDecode",
	"arguments and schema":     "host/plugin.FuzzValidate",
	"shell text, real shells":  "host/shell.FuzzScript",
	"shell words, real shells": "host/shell.FuzzTokens",
	"Wasm sections":            "host/sandbox/meter.FuzzRewrite",
	"lines of the journal":     "host/audit.FuzzDecode",
	"the lock":                 "host/plugin.FuzzLock",
	"data.yaml":                "host/policy/load/strict.FuzzData",
	"API paths":                "host/policy.FuzzAPIPaths",
	"UPIDs":                    "host/policy.FuzzUPIDs",
	"SFTP answers":             "host/remote/internal/files.FuzzAnswers",
	"tokens":                   "host/identity.FuzzBearer",
}

func TestEveryReaderHasAFuzzTargetOrSaysWhyNot(t *testing.T) {
	found := map[string]string{} // package to its first file that reads
	for _, file := range sources(t, "host/*.go", "client/*.go", "sdk/*.go", "plugins/*.go") {
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../../")
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(dir, "test") ||
			found[dir] != "" {
			continue // helpers of tests: sshtest, sdktest, pvetest, fronttest
		}
		if reading.MatchString(read(t, file)) {
			found[dir] = file
		}
	}
	if len(found) < 25 {
		t.Fatalf("only %d packages read anything: %v", len(found), found)
	}
	for dir, file := range found {
		if len(readers[dir]) == 0 {
			t.Errorf(
				"%s reads bytes of others, and no fuzz target is named for it: write one with "+
					"an oracle and add %s to readers, or say there why it needs none", file, dir)
		}
	}
	for dir, targets := range readers {
		for _, target := range targets {
			if !strings.HasPrefix(target, "no: ") {
				oracle(t, target)
			} else if len(targets) != 1 {
				t.Errorf("%s has targets, and a reason for none", dir)
			}
		}
	}
}

func TestEveryNamedParserHasAFuzzTargetAndACorpus(t *testing.T) {
	for parser, target := range named {
		dir, name := oracle(t, target)
		corpus, err := os.ReadDir(filepath.Join(dir, "testdata/fuzz", name))
		if err != nil || len(corpus) < 5 {
			t.Errorf("%s: %s has %d committed inputs: %v", parser, target, len(corpus), err)
		}
	}
}

// oracle holds that a target exists, and that it can fail by more than a panic.
func oracle(t *testing.T, target string) (dir, name string) {
	t.Helper()
	pkg, name, _ := strings.Cut(target, ".")
	dir = filepath.Join("../..", pkg)
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	has := slices.ContainsFunc(files, func(file string) bool {
		_, body, has := strings.Cut(read(t, file), "func "+name+"(f *testing.F) {")
		body, _, _ = strings.Cut(body, "\n}\n")
		return has && regexp.MustCompile(`t\.(Error|Fatal)|\(t, |f\.Fuzz\([a-z]+\.`).MatchString(
			body)
	})
	if !has {
		t.Errorf("there is no fuzz target %s with an oracle", target)
	}
	return dir, name
}
