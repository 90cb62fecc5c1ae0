// Two threads that write one number without order: ThreadSanitizer must report it, or its silence
// about the other tests means nothing.
#include <cstdio>
#include <thread>

int main() {
  int unguarded = 0;
  std::thread other([&unguarded] {
    for (int i = 0; i < 1000; ++i) ++unguarded;
  });
  for (int i = 0; i < 1000; ++i) ++unguarded;
  other.join();
  std::printf("%d\n", unguarded);
  return 0;
}
