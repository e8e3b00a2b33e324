// Package memo remembers answers of Rego rules, for as long as one revision of the policy holds.
//
// A rule is a pure function of its input and of data, since the capabilities of this program have
// no built-in function that is not. So two inputs that agree in all members that a rule can depend
// on ([MembersOf]) give it one value.
package memo

import (
	"cmp"
	"crypto/sha256"
	"sync"
	"sync/atomic"
)

// Of remembers values by a key. Its methods may be called concurrently. The zero value is empty.
type Of[V any] struct {
	// Most bounds the values, 4,096 unless it is set before the first of them. When there are more,
	// all are forgotten.
	Most  int32
	all   sync.Map // by a digest: a key may hold a whole inventory
	count atomic.Int32
}

// Get returns the value of a key.
func (m *Of[V]) Get(key string) (v V, known bool) {
	if found, ok := m.all.Load(sha256.Sum256([]byte(key))); ok {
		return found.(V), true
	}
	return v, false
}

// Put remembers a value, which must not be changed afterwards.
func (m *Of[V]) Put(key string, v V) {
	if m.count.Add(1) > cmp.Or(m.Most, 4096) {
		m.all.Clear()
		m.count.Store(1)
	}
	m.all.Store(sha256.Sum256([]byte(key)), v)
}

// ByInput remembers values of rules by the members of their input. The zero value knows no rule.
type ByInput[V any] struct {
	rules map[string]*Members // by name
	known Of[V]
}

// Rule gives the members of a rule ([MembersOf]) the rule's name. It must not be called once the
// memo is in use.
func (m *ByInput[V]) Rule(name string, members *Members) {
	if m.rules == nil {
		m.rules = map[string]*Members{}
	}
	m.rules[name] = members
}

// Key returns a digest of what the value of a rule can depend on, or "" for a rule without a name.
// The input is a Rego value, or a Go value that stands for one.
func (m *ByInput[V]) Key(name string, in any) string {
	members := m.rules[name]
	if members == nil {
		return ""
	}
	sum := sha256.Sum256(members.Key(make([]byte, 0, 4096), in))
	return name + string(sum[:])
}

// Get returns the value of a key.
func (m *ByInput[V]) Get(key string) (V, bool) { return m.known.Get(key) }

// Put remembers a value, which must not be changed afterwards. It ignores the key "".
func (m *ByInput[V]) Put(key string, v V) {
	if key != "" {
		m.known.Put(key, v)
	}
}
