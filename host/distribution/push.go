package distribution

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
)

// epoch is the time of every artifact, so that the same plugin has the same digest.
const epoch = "1970-01-01T00:00:00Z"

// Push publishes a plugin under a tag, when all that refers to it is there, and returns its
// reference with the digest.
func Push(ctx context.Context, to string, a Artifact, o Options) (ref string, err error) {
	r, err := parse(to)
	if err != nil {
		return "", err
	}
	if r.Reference == "" || digestForm.MatchString(r.Reference) {
		return "", fmt.Errorf("%q has no tag to publish under: add :TAG", to)
	}
	if len(a.Module) > MaxModule {
		return "", fmt.Errorf("the module has %d bytes, at most %d are pulled", len(a.Module),
			MaxModule)
	}
	repo, err := o.repository(r)
	if err != nil {
		return "", err
	}
	ctx, cancel := o.within(ctx)
	defer cancel()
	desc, err := push(ctx, repo, a)
	if err == nil {
		err = repo.Tag(ctx, desc, r.Reference)
	}
	if err != nil {
		return "", fmt.Errorf("pushing %s: %w", to, why(ctx, err))
	}
	return written(r, desc.Digest.String()), nil
}

func push(ctx context.Context, repo *remote.Repository, a Artifact) (d ocispec.Descriptor,
	err error) {
	layer := content.NewDescriptorFromBytes(moduleType, a.Module)
	c, err := json.Marshal(config{Created: epoch, Architecture: "wasm", OS: "wasip1",
		LayerDigests: []string{layer.Digest.String()}, Plugin: a.About})
	if err != nil {
		return d, err
	}
	about := content.NewDescriptorFromBytes(configType, c)
	if err := errors.Join(blob(ctx, repo, layer, a.Module), blob(ctx, repo, about, c)); err != nil {
		return d, err
	}
	d, err = oras.PackManifest(ctx, repo, oras.PackManifestVersion1_1, ArtifactType,
		oras.PackManifestOptions{Layers: []ocispec.Descriptor{layer}, ConfigDescriptor: &about,
			ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: epoch,
				ocispec.AnnotationTitle: a.About.Name, ocispec.AnnotationVersion: a.About.Version,
				ocispec.AnnotationDescription: a.About.Description,
				ocispec.AnnotationLicenses:    a.About.Licence}})
	if err != nil {
		return d, err
	}
	for _, data := range append(append([][]byte{}, a.Signatures...), a.SBOMs...) {
		kind, err := typeOf(data)
		if err != nil {
			return d, err
		}
		part := content.NewDescriptorFromBytes(kind, data)
		if err := blob(ctx, repo, part, data); err != nil {
			return d, err
		}
		if _, err = oras.PackManifest(ctx, repo, oras.PackManifestVersion1_1, kind,
			oras.PackManifestOptions{Subject: &d, Layers: []ocispec.Descriptor{part},
				ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: epoch},
			}); err != nil {
			return d, err
		}
	}
	return d, nil
}

// blob pushes what the registry has not.
func blob(ctx context.Context, repo *remote.Repository, d ocispec.Descriptor, data []byte) error {
	if there, err := repo.Blobs().Exists(ctx, d); there || err != nil {
		return err
	}
	return repo.Blobs().Push(ctx, d, bytes.NewReader(data))
}
