# The formula for Homebrew: the host on Linux; on macOS caponier-connect, for a host elsewhere.
class Caponier < Formula
  desc "Lets MCP clients operate Proxmox nodes, each step decided by policy"
  homepage "https://github.com/caponier-mcp/caponier"
  version "{{version}}"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/caponier-mcp/caponier/releases/download/v{{version}}/caponier-connect-{{version}}-darwin-arm64"
      sha256 "{{sha256 caponier-connect-{{version}}-darwin-arm64}}"
    end
    on_intel do
      url "https://github.com/caponier-mcp/caponier/releases/download/v{{version}}/caponier-connect-{{version}}-darwin-amd64"
      sha256 "{{sha256 caponier-connect-{{version}}-darwin-amd64}}"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/caponier-mcp/caponier/releases/download/v{{version}}/caponier-{{version}}-linux-arm64.tar.gz"
      sha256 "{{sha256 caponier-{{version}}-linux-arm64.tar.gz}}"
    end
    on_intel do
      url "https://github.com/caponier-mcp/caponier/releases/download/v{{version}}/caponier-{{version}}-linux-amd64.tar.gz"
      sha256 "{{sha256 caponier-{{version}}-linux-amd64.tar.gz}}"
    end
  end

  def install
    if OS.mac?
      bin.install Dir["caponier-connect-*"].first => "caponier-connect"
    else
      man1.install Dir["man/*.1"]
      libexec.install Dir["*"] # the program finds its files beside itself
      bin.install_symlink libexec/"build/caponier"
    end
  end

  test do
    if OS.mac?
      assert_match version.to_s, shell_output("#{bin}/caponier-connect --help 2>&1")
    else
      assert_match version.to_s, shell_output("#{bin}/caponier version")
    end
  end
end
