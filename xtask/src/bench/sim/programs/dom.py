# Builds a document tree, and transforms it by walks over all nodes, as xalancbmk does.
import sys
import xml.etree.ElementTree as tree

records, walks = int(sys.argv[1]), int(sys.argv[2])
root = tree.Element("site")
for record in range(records):
    item = tree.SubElement(root, "item", id=str(record * 7919 % records))
    tree.SubElement(item, "name").text = "name %d" % record
    tree.SubElement(item, "price").text = str(record % 97)
for walk in range(walks):
    total = sum(int(price.text) for price in root.iter("price"))
    order = sorted(root, key=lambda item: item.get("id"))
    root[:] = order
print(total)
