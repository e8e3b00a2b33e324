package load

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
)

// FromFolder builds the policy of a site's folder. Its error lists what must change, with file and
// line.
func FromFolder(ctx context.Context, dir string, inv Inventory) (*Candidate, error) {
	return fromFolder(ctx, dir, inv, nil)
}

// Untested is FromFolder without running the site's tests, for what decides nothing.
func Untested(ctx context.Context, dir string) (*Candidate, error) {
	return fromFolder(ctx, dir, Inventory{}, func(string) bool { return true })
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

// FromFiles is FromFolder for a site whose files are as [Files] returns them, or were changed.
func FromFiles(ctx context.Context, all map[string][]byte, inv Inventory) (*Candidate, error) {
	return build(ctx, all, inv, nil)
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

func parse(all files, inv Inventory) (c *Candidate, err error) {
	c = &Candidate{modules: map[string]*ast.Module{}, tests: map[string]*ast.Module{},
		helpers: files{}, site: files{},
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
		case strings.HasSuffix(name, testSuffix) && !owned(name): // kept by an older version
		case strings.HasPrefix(name, "testing/"):
			c.helpers[name] = data
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

// checkCompiled holds the data and the compiled rules against what they must be.
func (c *Candidate) checkCompiled(ctx context.Context) error {
	return errors.Join(c.checkData(ctx), c.lintCompiled())
}
