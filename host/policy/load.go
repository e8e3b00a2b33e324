package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/policies"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/version"
	"gopkg.in/yaml.v3"
)

// files are everything that decides, by path: core/…, schemas/…, capabilities.json as built in, and
// site/….
type files map[string][]byte

// revision is one policy, ready to answer. It is never changed.
type revision struct {
	id       string
	bundle   []byte // what build needs to make it again
	modules  map[string]*ast.Module
	tests    map[string]*ast.Module
	caps     *ast.Capabilities
	schemas  *ast.SchemaSet
	store    storage.Store
	data     map[string]any
	siteYAML map[string]*yaml.Node // to say where a mistake is
	redact   []string
	rules    evaluator
}

const maxFile = 4 << 20

func coreFiles() (files, error) {
	all := files{}
	err := fs.WalkDir(policies.Files, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[p], err = policies.Files.ReadFile(p)
		return err
	})
	return all, err
}

// siteFiles reads the folder beside the built-in core. What it does not know the use of is an
// error, not ignored.
func siteFiles(dir string) (files, error) {
	all, err := coreFiles()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the site's policy folder: %w", err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, hidden := path.Join("site", p), strings.HasPrefix(d.Name(), ".") && p != "."
		switch ext := path.Ext(p); {
		case d.IsDir() && hidden:
			return fs.SkipDir
		case d.IsDir() || hidden || ext == ".md":
			return nil
		case ext != ".rego" && ext != ".yaml" && ext != ".json":
			return fmt.Errorf(
				"%s: only .rego, .yaml, .json and .md files belong in a site's policy folder",
				path.Join(dir, p),
			)
		}
		data, err := root.ReadFile(p)
		if err == nil && len(data) > maxFile {
			err = fmt.Errorf("%s: is larger than %d bytes", path.Join(dir, p), maxFile)
		}
		all[name] = data
		return err
	})
	return all, err
}

// build makes a revision or says what is wrong with the files.
func build(ctx context.Context, all files) (*revision, error) {
	r := &revision{
		modules:  map[string]*ast.Module{},
		tests:    map[string]*ast.Module{},
		data:     map[string]any{},
		siteYAML: map[string]*yaml.Node{},
	}
	var err error
	if r.bundle, err = pack(all); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(r.bundle)
	r.id = hex.EncodeToString(sum[:])
	if err := r.parse(all); err != nil {
		return nil, err
	}
	r.store = inmem.NewFromObjectWithOpts(
		r.data,
		inmem.OptRoundTripOnWrite(false),
		inmem.OptReturnASTValuesOnRead(true),
	)
	if err := errors.Join(r.lint(), r.lintTests()); err != nil {
		return nil, err
	}
	var planning sync.WaitGroup // takes as long as all that follows, and needs none of it
	var planErr error
	planning.Go(func() { r.rules, planErr = evaluatorOf(ctx, r) })
	defer planning.Wait()
	compiler, err := r.compile(ctx, r.modules)
	if err != nil {
		return nil, err
	}
	if err := r.lintRefs(compiler); err != nil {
		return nil, err
	}
	if err := r.checkData(ctx, compiler); err != nil {
		return nil, err
	}
	r.redact = textsAt(r.data, "site", "redact")
	if err := r.testSite(ctx); err != nil {
		return nil, err
	}
	planning.Wait()
	return r, planErr
}

// pack writes the files so that equal policies are equal bytes. The version of OPA is part of what
// decides.
func pack(all files) ([]byte, error) {
	texts := map[string]string{"opa": version.Version}
	for name, data := range all {
		texts[name] = string(data)
	}
	return json.Marshal(texts)
}

func unpack(bundle []byte) (files, error) {
	var texts map[string]string
	if err := json.Unmarshal(bundle, &texts); err != nil {
		return nil, fmt.Errorf("reading a kept policy: %w", err)
	}
	all := files{}
	for name, text := range texts {
		if name != "opa" {
			all[name] = []byte(text)
		}
	}
	return all, nil
}

func (r *revision) parse(all files) (err error) {
	if r.caps, err = ast.LoadCapabilitiesJSON(bytes.NewReader(all["capabilities.json"])); err != nil {
		return fmt.Errorf("capabilities.json: %w", err)
	}
	r.schemas = ast.NewSchemaSet()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch data := all[name]; {
		case path.Ext(name) == ".rego":
			err = r.parseRego(name, data)
		case path.Ext(name) == ".schema":
			var schema any
			err = json.Unmarshal(data, &schema)
			r.schemas.Put(
				ast.MustParseRef("schema."+strings.TrimSuffix(path.Base(name), ".schema")),
				schema,
			)
			if path.Base(name) == "input.schema" { // also for modules that do not say so
				r.schemas.Put(ast.SchemaRootRef, schema)
			}
		case name != "capabilities.json":
			err = r.parseData(name, data)
		}
		if err != nil {
			return err
		}
	}
	if r.data["site"] == nil {
		return errors.New("there is no data.yaml in the site's folder, so nothing is granted")
	}
	return nil
}

// parseRego holds every module to its owner's packages.
func (r *revision) parseRego(name string, data []byte) error {
	m, err := ast.ParseModuleWithOpts(
		name,
		string(data),
		ast.ParserOptions{ProcessAnnotation: true, Capabilities: r.caps, RegoVersion: ast.RegoV1},
	)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%s: is empty", name)
	}
	owner, _, _ := strings.Cut(name, "/")
	if pkg := m.Package.Path.String(); !strings.HasPrefix(pkg+".", "data.caponier."+owner+".") {
		return fmt.Errorf(
			"%s: package %s does not belong in %s: packages here are caponier.%s.…",
			m.Package.Location,
			strings.TrimPrefix(pkg, "data."),
			owner,
			owner,
		)
	}
	if strings.HasSuffix(name, "_test.rego") {
		r.tests[name] = m
	} else {
		r.modules[name] = m
	}
	return nil
}

// parseData mounts a file where plain opa would: at its folder's path.
func (r *revision) parseData(name string, data []byte) error {
	var node, second yaml.Node
	var doc any
	d := yaml.NewDecoder(bytes.NewReader(data))
	// an empty file is no map, as is said below
	if err := d.Decode(&node); err != nil && err != io.EOF {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := d.Decode(&second); err != io.EOF {
		return fmt.Errorf(
			"%s:%d: a second YAML document begins here, which nothing would read (%v)",
			name,
			second.Line,
			err,
		)
	}
	if err := node.Decode(&doc); err != nil { // also refuses keys that are there twice
		return fmt.Errorf("%s: %w", name, err)
	}
	if owned(name) {
		r.siteYAML[name] = &node
	}
	v, err := plainData(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	top, isMap := v.(map[string]any)
	if !isMap {
		return fmt.Errorf("%s: is not a map", name)
	}
	at := r.data
	for part := range strings.SplitSeq(path.Dir(name), "/") {
		next, _ := at[part].(map[string]any)
		if next == nil {
			next = map[string]any{}
			at[part] = next
		}
		at = next
	}
	return merge(at, top, name)
}

// part is a map within a map, nil where there is none.
func part(m map[string]any, key string) map[string]any {
	v, _ := m[key].(map[string]any)
	return v
}

func textsAt(data map[string]any, part, key string) (texts []string) {
	m, _ := data[part].(map[string]any)
	list, _ := m[key].([]any)
	for _, v := range list {
		if s, ok := v.(string); ok {
			texts = append(texts, s)
		}
	}
	return texts
}

func merge(into, from map[string]any, name string) error {
	for k, v := range from {
		a, isMap := into[k].(map[string]any)
		b, isMapToo := v.(map[string]any)
		switch _, there := into[k]; {
		case !there:
			into[k] = v
		case isMap && isMapToo:
			if err := merge(a, b, name); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: %s is set in another file too", name, k)
		}
	}
	return nil
}

// plainData makes what YAML read into what JSON could have held.
func plainData(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			p, err := plainData(x)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			v[k] = p
		}
		return v, nil
	case map[any]any:
		m := map[string]any{}
		for k, x := range v {
			p, err := plainData(x)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", k, err)
			}
			m[fmt.Sprint(k)] = p
		}
		return m, nil
	case []any:
		for i, x := range v {
			p, err := plainData(x)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i, err)
			}
			v[i] = p
		}
		return v, nil
	case int:
		return json.Number(strconv.Itoa(v)), nil
	case string, bool, nil:
		return v, nil
	}
	return nil, fmt.Errorf("%v is neither text, a whole number, true, false, a list nor a map", v)
}

func (r *revision) compile(
	ctx context.Context,
	modules map[string]*ast.Module,
) (*ast.Compiler, error) {
	txn, err := r.store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer r.store.Abort(ctx, txn)
	c := r.compiler().WithPathConflictsCheck(storage.NonEmpty(ctx, r.store, txn))
	copies := map[string]*ast.Module{}
	for name, m := range modules {
		copies[name] = m.Copy()
	}
	if c.Compile(copies); c.Failed() {
		return nil, c.Errors
	}
	return c, nil
}

func (r *revision) compiler() *ast.Compiler {
	return ast.NewCompiler().
		WithStrict(true).
		WithCapabilities(r.caps).
		WithSchemas(r.schemas).
		WithUseTypeCheckAnnotations(true).
		SetErrorLimit(20)
}
