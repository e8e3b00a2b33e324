package load

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Inventory is what the names in a policy are held against. Names of a nil list are not checked.
// It takes no part in decisions.
type Inventory struct {
	Tools []*gate.Tool // of the lock
	Nodes []string     // of the configuration
}

// Candidate is one policy that is fit to decide. It does not change.
type Candidate struct {
	Rules    *policy.Rules
	Bundle   []byte   // what [FromBundle] makes the same candidate of; nil once in force
	Warnings []string // names that nothing in the lock has, each with its place
	Idle     []string // what is granted and can never work, each with its place

	modules, tests map[string]*ast.Module // tests are the site's
	coreTests      files                  // are parsed when tests run
	site           files                  // the files of the site
	wellTyped      bool                   // all modules are this program's: see compile
	base           map[string]any         // data as OPA's values; see baseData
	caps           *ast.Capabilities
	schemas        *ast.SchemaSet
	data           map[string]any
	places         map[string]string // file:line by path in the site's data
	inventory      Inventory
	compiler       *ast.Compiler
}

// FromFolder builds the policy of a site's folder. Its error lists what must change, with file and
// line.
func FromFolder(ctx context.Context, dir string, inv Inventory) (*Candidate, error) {
	return fromFolder(ctx, dir, inv, nil)
}

// fromFolder does not run the site's tests where tested says that they passed with this revision.
func fromFolder(ctx context.Context, dir string, inv Inventory, tested func(string) bool) (
	*Candidate, error) {
	all, err := siteFiles(dir)
	if err != nil {
		return nil, err
	}
	return named(ctx, dir, all, inv, tested)
}

// named is build with the name of the folder in its errors.
func named(ctx context.Context, dir string, all files, inv Inventory, tested func(string) bool) (
	*Candidate, error) {
	c, err := build(ctx, all, inv, tested)
	if err != nil {
		return nil, fmt.Errorf("policy of %s: %w", dir, err)
	}
	return c, nil
}

// FromBundle builds a policy that was kept. It was checked when it came into force, so that neither
// its tests nor an inventory are held against it again.
func FromBundle(ctx context.Context, bundle []byte) (*Candidate, error) {
	all, err := unpack(bundle)
	if err != nil {
		return nil, err
	}
	c, err := parse(all, Inventory{})
	if err != nil {
		return nil, err
	}
	if err := c.compile(ctx); err != nil {
		return nil, err
	}
	return c, c.finish(ctx)
}

// build makes a candidate or says what is wrong with the files.
func build(ctx context.Context, all files, inv Inventory, tested func(string) bool) (
	*Candidate, error) {
	c, err := parse(all, inv)
	if err != nil {
		return nil, err
	}
	if err := c.lint(ctx); err != nil {
		return nil, err
	}
	if err := c.compile(ctx); err != nil {
		return nil, err
	}
	// Looking for mistakes in the data takes as long as making the rules: both at once.
	mistakes := make(chan error, 1)
	go func() { mistakes <- c.checkCompiled(ctx) }()
	made := c.finish(ctx)
	if made == nil {
		made = c.smoke(ctx)
	}
	if err := cmp.Or(<-mistakes, made); err != nil {
		return nil, err
	}
	if tested != nil && tested(c.Rules.Revision) {
		return c, nil
	}
	if err := c.testSite(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// finish derives the tables that depend on data alone and makes the rules.
func (c *Candidate) finish(ctx context.Context) error {
	derived, err := c.query(ctx, "data.caponier.core.derived", nil)
	if err != nil {
		return fmt.Errorf("deriving tables from the data: %w", err)
	}
	more := map[string]any{}
	if derived != nil {
		more["derived"] = derived
	}
	var redact []string
	for _, name := range list(c.data, "site", "redact") {
		redact = append(redact, fmt.Sprint(name))
	}
	sum := sha256.Sum256(c.Bundle)
	store, err := c.store(more)
	if err != nil {
		return err
	}
	c.Rules, err = policy.Compile(ctx, policy.Source{Revision: hex.EncodeToString(sum[:]),
		Compiler: c.compiler, Store: store, Redact: redact})
	return err
}

// Data is the data of the site and of the command grammar.
func (c *Candidate) Data() map[string]any { return c.data }

// store holds the data, and more beside it.
func (c *Candidate) store(more map[string]any) (storage.Store, error) {
	if c.base == nil {
		base := map[string]any{}
		for name, v := range c.data {
			value, err := ast.InterfaceToValue(v)
			if err != nil {
				return nil, fmt.Errorf("reading data.%s: %w", name, err)
			}
			base[name] = value
		}
		c.base = base
	}
	data := maps.Clone(c.base)
	maps.Copy(data, more)
	return inmem.NewFromObjectWithOpts(data, inmem.OptRoundTripOnWrite(false),
		inmem.OptReturnASTValuesOnRead(true)), nil
}

// ask returns the value of a query without an input, nil where it is undefined. More data can be
// laid beside the site's.
func (c *Candidate) ask(ctx context.Context, query string, more map[string]any) (any, error) {
	v, err := c.query(ctx, query, more)
	if err != nil || v == nil {
		return nil, err
	}
	return ast.JSON(v)
}

// query is ask as OPA has the value.
func (c *Candidate) query(ctx context.Context, query string, more map[string]any) (
	v ast.Value, err error) {
	body, err := ast.ParseBody("answer = " + query)
	if err != nil {
		return nil, err
	}
	if body, err = c.compiler.QueryCompiler().Compile(body); err != nil {
		return nil, err
	}
	store, err := c.store(more)
	if err != nil {
		return nil, err
	}
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Abort(ctx, txn)
	return v, topdown.NewQuery(body).WithCompiler(c.compiler).WithStore(store).
		WithTransaction(txn).WithStrictBuiltinErrors(true).
		Iter(ctx, func(result topdown.QueryResult) error {
			v = result[ast.Var("answer")].Value
			return nil
		})
}

func parse(all files, inv Inventory) (c *Candidate, err error) {
	c = &Candidate{modules: map[string]*ast.Module{}, tests: map[string]*ast.Module{},
		coreTests: files{}, site: files{},
		data: map[string]any{}, places: map[string]string{}, schemas: ast.NewSchemaSet(),
		inventory: inv}
	if c.Bundle, err = pack(all); err != nil {
		return nil, err
	}
	c.caps, err = ast.LoadCapabilitiesJSON(bytes.NewReader(all["capabilities.json"]))
	if err != nil {
		return nil, fmt.Errorf("capabilities.json: %w", err)
	}
	names := slices.Sorted(maps.Keys(all))
	c.wellTyped = !slices.ContainsFunc(names, func(name string) bool {
		return owned(name) && path.Ext(name) == ".rego"
	})
	modules, wrong := make([]*ast.Module, len(names)), make([]error, len(names))
	var parsing sync.WaitGroup
	for i, name := range names {
		if owned(name) {
			c.site[name] = all[name]
		}
		switch data := all[name]; {
		case strings.HasSuffix(name, testSuffix) && !owned(name):
			c.coreTests[name] = data
		case path.Ext(name) == ".rego": // on all processors, beside the data
			parsing.Go(func() { modules[i], wrong[i] = c.parseModule(name, data) })
		case path.Ext(name) == ".schema":
			wrong[i] = c.parseSchema(strings.TrimSuffix(path.Base(name), ".schema"), data)
		case name != "capabilities.json":
			wrong[i] = c.parseData(name, data)
		}
	}
	parsing.Wait()
	for i, name := range names {
		if wrong[i] != nil {
			return nil, wrong[i]
		}
		if modules[i] != nil {
			c.add(name, modules[i])
		}
	}
	if c.data["site"] == nil {
		return nil, errNoData
	}
	return c, nil
}

func (c *Candidate) parseSchema(name string, data []byte) error {
	var schema any
	if err := json.Unmarshal(data, &schema); err != nil {
		return fmt.Errorf("schemas/%s: %w", name, err)
	}
	c.schemas.Put(ast.MustParseRef("schema."+name), schema)
	if name == "input" { // also for modules without an annotation
		c.schemas.Put(ast.SchemaRootRef, schema)
	}
	return nil
}

const testSuffix = "_test.rego"

// parseModule refuses a module outside its owner's packages. It may be called concurrently.
func (c *Candidate) parseModule(name string, data []byte) (*ast.Module, error) {
	m, err := ast.ParseModuleWithOpts(name, string(data),
		// annotations say of what type input and data are, for the check of types
		ast.ParserOptions{ProcessAnnotation: !c.wellTyped, Capabilities: c.caps,
			RegoVersion: ast.RegoV1})
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%s: is empty", name)
	}
	owner, _, _ := strings.Cut(name, "/")
	if pkg := m.Package.Path.String(); !strings.HasPrefix(pkg+".", "data.caponier."+owner+".") {
		return nil, fmt.Errorf("%s: package %s does not belong in %s: its packages are "+
			"caponier.%s and those below it",
			m.Package.Location, strings.TrimPrefix(pkg, "data."), owner, owner)
	}
	return m, nil
}

func (c *Candidate) add(name string, m *ast.Module) {
	if strings.HasSuffix(name, testSuffix) {
		c.tests[name] = m
	} else {
		c.modules[name] = m
	}
}

// checked are the compiler's stages that only find mistakes in Rego.
var checked = []ast.StageID{ast.StageCheckUnusedImports, ast.StageCheckKeywordOverrides,
	ast.StageCheckDuplicateImports, ast.StageCheckVoidCalls, ast.StageParseMetadataBlocks,
	ast.StageSetAnnotationSet, ast.StageCheckUndefinedFuncs, ast.StageCheckRecursion,
	ast.StageCheckTypes, ast.StageCheckUnsafeBuiltins, ast.StageCheckDeprecatedBuiltins,
	ast.StageBuildRequiredCapabilities}

// compile compiles all modules but the tests. Without Rego of a site, it leaves out checks: core
// and schemas are constants of this program, which passed them in its tests.
func (c *Candidate) compile(ctx context.Context) error {
	store, err := c.store(nil)
	if err != nil {
		return err
	}
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return err
	}
	defer store.Abort(ctx, txn)
	c.compiler = c.newCompiler().WithPathConflictsCheck(storage.NonEmpty(ctx, store, txn))
	if c.wellTyped {
		c.compiler = c.compiler.WithSkipStages(checked...)
	}
	if c.compiler.Compile(c.modules); c.compiler.Failed() {
		return c.compiler.Errors
	}
	return nil
}

func (c *Candidate) newCompiler() *ast.Compiler {
	return ast.NewCompiler().WithStrict(true).WithCapabilities(c.caps).WithSchemas(c.schemas).
		WithUseTypeCheckAnnotations(true).SetErrorLimit(20)
}

// owned reports whether a file is the site's.
func owned(name string) bool { return strings.HasPrefix(name, "site/") }

// at returns what stands below a path of keys, nil where nothing does.
func at(data map[string]any, keys ...string) any {
	var v any = data
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

func list(data map[string]any, keys ...string) []any {
	l, _ := at(data, keys...).([]any)
	return l
}

func keys(data map[string]any, path ...string) []string {
	m, _ := at(data, path...).(map[string]any)
	return slices.Sorted(maps.Keys(m))
}
