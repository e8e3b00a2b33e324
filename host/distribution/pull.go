package distribution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
)

// Pull returns a plugin and what refers to it. Every byte has the digest that the reference, or the
// artifact with that digest, gives it; what refers to it is chosen by the registry. A reference
// with a tag is an error that says what digest it has now.
func Pull(ctx context.Context, from string, o Options) (a Artifact, err error) {
	r, err := parse(from)
	if err != nil {
		return a, err
	}
	repo, err := o.repository(r)
	if err != nil {
		return a, err
	}
	ctx, cancel := o.within(ctx)
	defer cancel()
	if !digestForm.MatchString(r.Reference) {
		if r.Reference == "" {
			return a, fmt.Errorf("%q has no digest: add @sha256:…", from)
		}
		d, err := repo.Resolve(ctx, r.Reference)
		if err != nil {
			return a, fmt.Errorf("resolving %s: %w", from, why(ctx, err))
		}
		return a, fmt.Errorf("a tag can be moved to another module: if %s is what you reviewed, "+
			"use %s", from, written(r, d.Digest.String()))
	}
	if a, err = pull(ctx, repo, digest.Digest(r.Reference)); err != nil {
		return Artifact{}, fmt.Errorf("pulling %s: %w", from, why(ctx, err))
	}
	return a, nil
}

func pull(ctx context.Context, repo *remote.Repository, want digest.Digest) (a Artifact,
	err error) {
	d, m, err := manifest(ctx, repo, want)
	if err != nil {
		return a, err
	}
	if m.ArtifactType != ArtifactType {
		return a, fmt.Errorf("is of type %q, want %q: it is no plugin", m.ArtifactType,
			ArtifactType)
	}
	if m.Config.MediaType != configType {
		return a, fmt.Errorf("its config is of type %q, want %q", m.Config.MediaType, configType)
	}
	about, err := read(ctx, repo, m.Config, "config", maxManifest)
	if err != nil {
		return a, err
	}
	var c config
	if err := strict(about, &c); err != nil {
		return a, fmt.Errorf("its config: %w", err)
	}
	a.About = c.Plugin
	layer, err := only(m, moduleType)
	if err != nil {
		return a, err
	}
	if a.Module, err = read(ctx, repo, layer, "module", MaxModule); err != nil {
		return a, err
	}
	return a, a.referrers(ctx, repo, d)
}

// manifest reads the manifest with this digest.
func manifest(ctx context.Context, repo *remote.Repository, want digest.Digest) (
	d ocispec.Descriptor, m ocispec.Manifest, err error) {
	d, body, err := repo.Manifests().FetchReference(ctx, want.String())
	if err != nil {
		return d, m, err
	}
	defer body.Close()
	if d.MediaType != ocispec.MediaTypeImageManifest {
		return d, m, fmt.Errorf("is a %q, want one %q", d.MediaType, ocispec.MediaTypeImageManifest)
	}
	data, err := io.ReadAll(io.LimitReader(body, maxManifest+1))
	switch {
	case err != nil:
		return d, m, err
	case len(data) > maxManifest:
		return d, m, fmt.Errorf("the manifest has more than %d bytes", maxManifest)
	case digest.FromBytes(data) != want:
		return d, m, fmt.Errorf("the registry sent a manifest with the digest %s",
			digest.FromBytes(data))
	}
	if err := strict(data, &m); err != nil {
		return d, m, fmt.Errorf("the manifest: %w", err)
	}
	if m.SchemaVersion != 2 || m.MediaType != ocispec.MediaTypeImageManifest {
		return d, m, fmt.Errorf("the manifest is a %q, version %d, want %q, 2", m.MediaType,
			m.SchemaVersion, ocispec.MediaTypeImageManifest)
	}
	d.Digest, d.Size = want, int64(len(data))
	return d, m, nil
}

// strict decodes JSON in which no key repeats, in whatever case.
func strict(data []byte, into any) error {
	if _, err := abi.Decode(data, maxManifest); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// only returns the one layer of a manifest.
func only(m ocispec.Manifest, kind string) (d ocispec.Descriptor, err error) {
	if len(m.Layers) != 1 {
		return d, fmt.Errorf("has %d layers, want one", len(m.Layers))
	}
	if d = m.Layers[0]; d.MediaType != kind {
		return d, fmt.Errorf("its layer is of type %q, want %q", d.MediaType, kind)
	}
	return d, nil
}

// read reads a blob with its size and digest.
func read(ctx context.Context, repo *remote.Repository, d ocispec.Descriptor, what string,
	most int64) ([]byte, error) {
	if d.Size < 0 || d.Size > most {
		return nil, fmt.Errorf("its %s has %d bytes, at most %d are read", what, d.Size, most)
	}
	if !digestForm.MatchString(string(d.Digest)) {
		return nil, fmt.Errorf("its %s has the digest %q, want a SHA-256", what, d.Digest)
	}
	data, err := content.FetchAll(ctx, repo.Blobs(), d)
	if err != nil {
		return nil, fmt.Errorf("its %s: the registry did not send %s with %d bytes: %w", what,
			d.Digest, d.Size, err)
	}
	return data, nil
}

// referrers reads the signatures and SBOMs that refer to an artifact.
func (a *Artifact) referrers(ctx context.Context, repo *remote.Repository,
	subject ocispec.Descriptor) error {
	var all []ocispec.Descriptor
	err := repo.Referrers(ctx, subject, "", func(page []ocispec.Descriptor) error {
		if all = append(all, page...); len(all) > maxReferrers {
			return fmt.Errorf("more than %d artifacts refer to it", maxReferrers)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		return fmt.Errorf("listing what refers to it: %w", err)
	}
	for _, d := range all {
		into, most := &a.Signatures, int64(maxSignature)
		switch d.ArtifactType {
		case sshType, bundleType:
		case spdxType, cycloneType:
			into, most = &a.SBOMs, MaxSBOM
		default:
			continue
		}
		if !digestForm.MatchString(string(d.Digest)) {
			return fmt.Errorf("%q refers to it, which is no SHA-256", d.Digest)
		}
		_, m, err := manifest(ctx, repo, d.Digest)
		if err != nil {
			return fmt.Errorf("%s, which refers to it: %w", d.Digest, err)
		}
		if m.Subject == nil || m.Subject.Digest != subject.Digest {
			return fmt.Errorf("%s is listed as referring to it and does not", d.Digest)
		}
		part, err := only(m, d.ArtifactType)
		if err != nil {
			return fmt.Errorf("%s, which refers to it: %w", d.Digest, err)
		}
		data, err := read(ctx, repo, part, d.ArtifactType, most)
		if err != nil {
			return err
		}
		*into = append(*into, data)
	}
	return nil
}
