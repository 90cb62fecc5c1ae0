#include "app/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/banner.h"
#include "app/commands.h"
#include "io/storage_thread.h"

namespace sidestep {
namespace {

std::string attribute_text(const AttrValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    std::string indented = *text;  // the config has many lines
    while (!indented.empty() && indented.back() == '\n') indented.pop_back();
    for (std::size_t at = 0; (at = indented.find('\n', at)) != std::string::npos; at += 7) {
      indented.replace(at, 1, "\n      ");
    }
    return indented == *text ? indented : "\n      " + indented;
  }
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

}  // namespace

std::string describe_checkpoint(const CheckpointContent& content) {
  std::string text;
  for (const auto& [group, attributes] : content.attributes) {
    text += group + "\n";
    for (const auto& [name, value] : attributes)
      text += fmt::format("  {} = {}\n", name, attribute_text(value));
  }
  std::size_t width = 8;
  for (const CheckpointTensor& tensor : content.tensors)
    width = std::max(width, tensor.path.size());
  std::int64_t total = 0;
  for (const CheckpointTensor& tensor : content.tensors) {
    total += tensor.shape.numel() * static_cast<std::int64_t>(size_of(tensor.dtype));
    text += fmt::format("{:<{}}  {:<8} {}\n", tensor.path, width, to_string(tensor.dtype),
                        to_string(tensor.shape));
  }
  return text + fmt::format("{} datasets, {}\n", content.tensors.size(),
                            bytes_text(static_cast<double>(total)));
}

int run_inspect(const Settings& settings) {
  StorageThread storage;
  CheckpointContent content;
  storage.read_now([&] {
    content =
        settings.verify ? read_checkpoint(settings.file) : read_checkpoint_outline(settings.file);
  });
  const std::string text =
      describe_checkpoint(content) + (settings.verify
                                          ? "verified: every dataset matches its digest\n"
                                          : "not verified: --verify reads and checks everything\n");
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace sidestep
