# Evaluates packaging/caponier.rb as Homebrew would on four machines, with its words replaced by
# ones that only note what they are told: what is downloaded is what was released, and install puts
# a program that runs where `brew` links it. ruby test/packaging/formula.rb DIR
require "digest"
require "fileutils"
require "pathname"
require "tmpdir"

DIST = Pathname(ARGV.fetch(0)).realpath
SYSTEMS = [%i[macos arm], %i[macos intel], %i[linux arm], %i[linux intel]].freeze

module OS
  def self.mac? = $system == :macos
end

# What a formula may say; anything else is an error of Ruby.
class Formula
  class << self
    %i[desc homepage version license url sha256].each do |word|
      define_method(word) { |*v| v.empty? ? instance_variable_get("@#{word}") : instance_variable_set("@#{word}", v.first) }
    end
    %i[macos linux].each { |s| define_method("on_#{s}") { |&b| b.call if $system == s } }
    %i[arm intel].each { |c| define_method("on_#{c}") { |&b| b.call if $processor == c } }
    def test(&block) = @test = block
  end
  %w[bin libexec man1].each { |d| define_method(d) { $prefix/d } }
end

class Pathname
  def install(what)
    mkpath
    return what.each { |from, to| FileUtils.cp(from, self/to, preserve: true).then { (self/to).chmod(0o555) } } if what.is_a?(Hash)
    raise "nothing to install in #{self}" if what.empty?
    what.each { |f| FileUtils.mv(f, self) }
  end

  def install_symlink(to)
    mkpath
    (self/to.basename).make_symlink(to)
  end
end

here = Pathname(__dir__).parent.parent
version = DIST.children.filter_map { |f| f.basename.to_s[/\Acaponier-(\d.*)-linux-\w+\.tar\.gz\z/, 1] }.first
released = DIST/"caponier.rb"
text = released.exist? ? released.read : (here/"packaging/caponier.rb").read.gsub("{{version}}", version)
ran = 0
SYSTEMS.each do |system, processor|
  $system, $processor = system, processor
  Object.send(:remove_const, :Caponier) if Object.const_defined?(:Caponier)
  eval(text)
  file = DIST/File.basename(Caponier.url)
  unless file.exist?
    raise "#{file} is not there" if released.exist?
    next # this architecture was not built
  end
  raise "#{file}: the formula has another digest" if released.exist? && Caponier.sha256 != Digest::SHA256.file(file).hexdigest
  Dir.mktmpdir do |dir|
    $prefix = Pathname(dir)/"prefix"
    FileUtils.mkdir(Pathname(dir)/"work")
    Dir.chdir(Pathname(dir)/"work") do
      if file.to_s.end_with?(".tar.gz") # brew goes into the one folder of an archive
        system!("tar", "-xzf", file.to_s, "--strip-components=1")
      else
        FileUtils.cp(file, ".")
      end
      Caponier.new.install
    end
    program = $prefix/"bin"/(system == :macos ? "caponier-connect" : "caponier")
    raise "#{program} cannot be started" unless program.executable?
    next unless system == :linux && `uname -m`.strip == { arm: "aarch64", intel: "x86_64" }[processor]
    raise "another version" unless `#{program} version`.include?(version)
    out = `HOME=#{dir} #{program} init --node pve1=192.0.2.1 --host-key SHA256:#{"A" * 43} 2>&1`
    raise "init does not find what lies beside it: #{out}" unless $?.success?
    ran += 1
  end
end
BEGIN { def system!(*words) = Kernel.system(*words) || raise(words.join(" ")) }
raise "nothing ran" if ran.zero?
puts "the formula: #{released.exist? ? "released" : "template"}, one system installed and started"
