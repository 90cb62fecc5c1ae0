#!/usr/bin/env python3
"""Wrong data of every kind, and the same data in several containers."""
import gzip
import shutil

import h5py
import numpy as np

import refusal
from refusal import RefusalCase
from runner import DATA, DONE, SETTINGS, idx_bytes, random_samples


class IdxData(RefusalCase):
    """D07 and kin: folders of IDX files."""

    IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"

    def first_loss(self, data, *options):
        out = f"loss{len(list(self.folder.glob('loss*')))}"
        self.mpirun(1, *self.train("--steps", 1, "--eval-every", 0, *options, out=out, data=data), check=DONE)
        return self.metrics(out)[0]["loss"]

    def refused_data(self, *words, ranks=1, options=()):
        message = self.refused(ranks, self.train(*options, data="idx:idx"), DATA, *words)
        self.assert_absent("run")
        return message

    def test_D07_the_format_is_told_by_the_content(self):
        self.write_idx("idx", size=8, classes=4)
        raw = self.first_loss("idx:idx")
        self.write_idx("zipped", size=8, classes=4, compress=True)
        self.assertEqual(self.first_loss("idx:zipped"), raw)
        # gzip without the ending, and the ending without gzip.
        for name in (self.IMAGES, self.LABELS):
            (self.folder / "zipped" / (name + ".gz")).rename(self.folder / "zipped" / name)
            (self.folder / "idx" / name).rename(self.folder / "idx" / (name + ".gz"))
        self.assertEqual(self.first_loss("idx:zipped"), raw)
        self.assertEqual(self.first_loss("idx:idx"), raw)

    def test_D07_other_content(self):
        folder = self.write_idx("idx", size=8, compress=True)
        images = folder / (self.IMAGES + ".gz")
        good = images.read_bytes()
        images.write_text("<!DOCTYPE html><html><body>" + "404 not found " * 48 + "</body></html>")
        message = self.refused_data(images.name, "expected an IDX file", "0x3c", "<!DO", ranks=3)
        self.assertIn("raw or gzip", message)
        images.write_bytes(b"")
        self.refused_data(images.name, "an empty file")
        images.write_bytes(good[:len(good) // 2])
        self.refused_data(images.name, "damaged or truncated")
        images.write_bytes(good[:200] + bytes(40) + good[240:])
        self.refused_data(images.name, "gzip")
        images.write_bytes(gzip.compress(good))  # compressed twice
        self.refused_data(images.name, "0x1f 0x8b")
        images.write_bytes(gzip.compress(gzip.decompress(good)[:-7]))
        self.refused_data(images.name, "expected 4096 bytes", "found 4089")
        images.write_bytes(gzip.compress(gzip.decompress(good) + b"x"))
        self.refused_data(images.name, "found more")
        images.unlink()
        images.mkdir()
        self.refused_data(images.name, "a folder")

    def test_headers(self):
        folder = self.write_idx("idx", size=8)
        images, labels = folder / self.IMAGES, folder / self.LABELS
        good = images.read_bytes()
        images.write_bytes(bytes([0, 0, 13]) + good[3:])  # float elements
        self.refused_data(images.name, "unsigned bytes")
        images.write_bytes(good[:10])
        self.refused_data(images.name, "header")
        images.write_bytes(good[:4] + (0).to_bytes(4, "big") + good[8:])
        self.refused_data(images.name, "0 elements")
        images.write_bytes(good[:4] + b"\xff" * 12 + good[16:])  # more than there is memory
        self.refused_data(images.name)
        images.write_bytes(labels.read_bytes())
        self.refused_data(images.name, "3 dimensions")

    def test_counts_and_missing_files(self):
        folder = self.write_idx("idx", size=8)
        labels = folder / self.LABELS
        labels.write_bytes(idx_bytes(np.zeros(63)))
        self.refused_data(labels.name, "64", "found 63", ranks=2)
        labels.unlink()
        self.refused_data("idx", f"expected a file {self.LABELS}", "found none")
        (folder / self.IMAGES).unlink()
        message = self.refused_data(self.LABELS, self.IMAGES, "2 of 4")
        self.assertNotIn("t10k", message)
        shutil.rmtree(folder)
        self.refused_data("idx", "expected a folder", "found none")
        folder.mkdir()
        self.refused_data("idx", self.IMAGES)
        shutil.rmtree(folder)
        folder.write_text("a file")
        self.refused_data("idx", "expected a folder")

    def test_every_bad_file_is_told(self):
        folder = self.write_idx("idx", size=8)
        for name in (self.IMAGES, "t10k-labels-idx1-ubyte"):
            (folder / name).write_text("<html>")
        self.refused_data(self.IMAGES, "t10k-labels-idx1-ubyte", "2 of 4")

    def test_D05_labels(self):
        folder = self.write_idx("idx", size=8)
        values = np.arange(64) % 10
        values[37] = 10
        (folder / self.LABELS).write_bytes(idx_bytes(values))
        self.refused_data(self.LABELS, "sample 37", "0..9", "found 10", ranks=3, options=["--classes", 10])

    def test_other_test_pictures(self):
        self.write_idx("idx", size=8)
        self.write_idx("other", size=10)
        for file in (self.folder / "other").glob("t10k-*"):
            shutil.copy(file, self.folder / "idx")
        self.refused_data("test images", "8x8", "10x10")

    def test_kinds_of_data(self):
        for data in ("mnist", "idx", "idx:", "hdf5", "hdf5:", "hdf5:a.h5,", "hdf5:,", "foo:bar", ":", "synthetic:0",
                     "synthetic:-4", "synthetic:64x8", "synthetic:64x8x8x1x", "synthetic:64x8x8x1x1", "synthetic:many",
                     "synthetic:64x8x8x1x4x5", "synthetic:64x0x8x1", "hdf5:a.h5;test="):
            self.refused(1, self.train(data=data), SETTINGS, "expected", f"'{data.partition(':')[2]}'"
                         if data.startswith(("synthetic:", "hdf5:a", "hdf5:,")) else f"'{data}'")
            self.assert_absent("run")
        self.refused(2, self.train(data="fashion-mnist:nowhere"), DATA, "nowhere", "dataset-fashion-mnist")

    def test_models_that_do_not_fit_the_pictures(self):
        message = self.refused(2, ["train", "--model", "lenet", "--data", "synthetic:64x8x8x1x4", "--out", "run"], SETTINGS,
                               "lenet")
        self.assertIn("8", message)
        self.assert_absent("run")


class Hdf5Data(RefusalCase):
    """D05, D09, D11 and kin: HDF5 files."""

    def refused_data(self, *words, ranks=1, options=(), data="hdf5:d.h5"):
        message = self.refused(ranks, self.train(*options, data=data), DATA, *words)
        self.assert_absent("run")
        return message

    def first_loss(self, data):
        out = f"loss{len(list(self.folder.glob('loss*')))}"
        self.mpirun(1, *self.train("--steps", 1, "--eval-every", 0, out=out, data=data), check=DONE)
        return self.metrics(out)[0]["loss"]

    def test_D05_a_label_out_of_range(self):
        x, y = random_samples(np.random.default_rng(1), 2000, 8, 8, 10)
        y = y.astype(np.int32)
        for ranks, value in ((1, 10), (3, 10), (2, -1)):
            y[1234] = value
            file = self.write_hdf5("d.h5", x=x[..., None], y=y)
            message = self.refused_data("d.h5: dataset y: sample 1234", "0..9", f"found {value}", ranks=ranks,
                                        options=["--classes", 10])
            with h5py.File(file, "r+") as opened:
                opened["y"].attrs["classes"] = 10
            declared = self.refused_data("sample 1234", f"found {value}", ranks=ranks)
            self.assertEqual(message, declared)
        y[77:80] = -1
        self.write_hdf5("d.h5", x=x[..., None], y=y)
        self.refused_data("sample 77", "found -1", "3 more")

    def test_D09_every_truncated_shard_is_told(self):
        names = [f"shard{i}.h5" for i in range(1, 7)]
        for i, name in enumerate(names):
            self.write_hdf5(name, count=100, seed=i)
        data = "hdf5:" + ",".join(names)
        for bad in (["shard5.h5"], ["shard2.h5", "shard5.h5"]):
            for name in bad:
                path = self.folder / name
                if path.stat().st_size > 7000:
                    with open(path, "r+b") as file:
                        file.truncate(path.stat().st_size - 1000)
            message = self.refused_data(*bad, ranks=3, data=data)
            for name in set(names) - set(bad):
                self.assertNotIn(name, message)
            self.assert_absent("run")
        self.assertIn("2 of 6 data files", message)
        (self.folder / "kept").mkdir()
        self.refused(2, self.train(out="kept/run", data=data), DATA, *bad)
        self.assertEqual(list((self.folder / "kept").iterdir()), [])

    def test_D11_the_container_does_not_change_the_loss(self):
        folder = self.write_idx("idx", size=8, classes=4)
        pictures, labels = random_samples(np.random.default_rng(1), 64, 8, 8, 4)
        self.assertEqual((folder / IdxData.IMAGES).read_bytes(), idx_bytes(pictures))
        pictures = pictures[..., None]
        scaled = (pictures / np.float32(255)).astype(np.float32)
        self.write_hdf5("u1.h5", x=pictures, y=labels)
        self.write_hdf5("f4.h5", x=scaled, y=labels.astype(np.int64))
        self.write_hdf5("big.h5", x=scaled.astype(">f4"), y=labels.astype(">i2"))
        self.write_hdf5("f8.h5", x=scaled.astype(">f8"), y=labels.astype("<u4")[:, None])
        self.write_hdf5("flat.h5", x=pictures.reshape(64, 64), y=labels)
        idx = self.first_loss("idx:idx")
        self.assertEqual(self.first_loss("hdf5:u1.h5"), idx)
        self.assertEqual(self.first_loss("hdf5:flat.h5"), idx)
        floats = self.first_loss("hdf5:f4.h5")
        self.assertAlmostEqual(floats, idx, delta=1e-6)
        self.assertEqual(self.first_loss("hdf5:big.h5"), floats)
        self.assertEqual(self.first_loss("hdf5:f8.h5"), floats)

    def test_D11_the_scaling_rule_is_told(self):
        self.write_hdf5("u1.h5")
        self.write_hdf5("f4.h5", x=np.random.default_rng(1).random((64, 8, 8, 1), np.float32))
        for name, scaled in (("u1", True), ("f4", False)):
            told = self.mpirun(2, *self.train("--steps", 1, out=name, data=f"hdf5:{name}.h5"), check=DONE).out
            told = [line for line in told.splitlines() if line.startswith("data ")]
            self.assertEqual(len(told), 1)
            self.assertEqual("1/255" in told[0], scaled, told)

    def test_D11_other_types(self):
        for x, name in ((np.zeros((64, 8, 8), np.int64), "int64"), (np.zeros((64, 8, 8), np.int8), "int8"),
                        (np.zeros((64, 8, 8), ">u2"), "uint16"), (np.zeros((64, 8, 8), np.float16), "float16"),
                        (np.zeros((64, 8, 8), [("a", "f4"), ("b", "f4")]), "compound"),
                        (np.full((64, 8, 8), b"pixel"), "string"), (np.zeros((64, 8, 8), bool), "enumeration"),
                        (np.zeros((64, 8, 8), np.complex64), "compound")):
            self.write_hdf5("d.h5", x=x)
            self.refused_data("d.h5: dataset x", f"found {name}", "uint8, float32 or float64")
        for y, name in ((np.zeros(64, np.float32), "float32"), (np.full(64, b"cat"), "string"),
                        (np.zeros(64, [("a", "i4")]), "compound")):
            self.write_hdf5("d.h5", y=y)
            self.refused_data("d.h5: dataset y", f"found {name}", "integer type")

    def test_datasets_and_shapes(self):
        for x, y, words in ((np.zeros(64, np.uint8), None, ["dataset x", "[64]"]),
                            (np.zeros((64, 2, 2, 2, 2), np.uint8), None, ["dataset x", "[n, h, w, c]"]),
                            (np.zeros((0, 8, 8), np.uint8), np.zeros(0, np.uint8), ["dataset x", "at least one sample"]),
                            (np.zeros((64, 8, 0), np.uint8), None, ["dataset x"]),
                            (None, np.zeros(63, np.uint8), ["dataset y", "[64]", "[63]"]),
                            (None, np.zeros((64, 10), np.uint8), ["dataset y", "[64, 10]"])):
            self.write_hdf5("d.h5", x=x, y=y)
            self.refused_data("d.h5", *words)
        for name in ("x", "y"):
            with h5py.File(self.write_hdf5("d.h5"), "r+") as file:
                file.move(name, "images")
            self.refused_data(f"d.h5: dataset {name}", "images")
        with h5py.File(self.write_hdf5("d.h5"), "r+") as file:
            del file["x"]
            file.create_group("x")
        self.refused_data("d.h5: dataset x")

    def test_files(self):
        self.refused_data("none.h5", "No such file", data="hdf5:none.h5", ranks=2)
        (self.folder / "d.h5").mkdir()
        self.refused_data("d.h5")
        (self.folder / "d.h5").rmdir()
        for content in (b"", b"<html>404</html>", b"\x89HDF\r\n\x1a\n" + bytes(100)):
            (self.folder / "d.h5").write_bytes(content)
            self.refused_data("d.h5")

    def test_shards_that_differ(self):
        self.write_hdf5("a.h5", size=8)
        self.write_hdf5("b.h5", size=10)
        self.write_hdf5("c.h5", x=np.zeros((64, 8, 8, 1), np.float32))
        self.refused_data("b.h5", "c.h5", "a.h5", data="hdf5:a.h5,b.h5,c.h5", ranks=2)
        self.refused_data("b.h5", data="hdf5:a.h5;test=b.h5")

    def test_N01_a_sample_that_is_not_finite(self):
        for bad in (np.nan, np.inf):
            x = np.random.default_rng(1).random((200, 8, 8, 1), np.float32)
            x[123, 4, 5] = bad
            self.write_hdf5("d.h5", x=x, y=np.arange(200) % 4)
            self.refused_data("d.h5: dataset x: sample 123", "finite", str(bad), ranks=2)

    def test_keep_best_without_test_data(self):
        self.write_hdf5("d.h5")
        self.refused(2, self.train("--keep-best", "loss", data="hdf5:d.h5"), SETTINGS, "--keep-best", "test=FILE")
        self.assert_absent("run")


if __name__ == "__main__":
    refusal.run()
